// The dashboard: which view for which address.

import { render } from "preact";
import { tick } from "./core/load";
import { listen, place, route } from "./core/route";
import { session } from "./core/session";
import { apply } from "./core/theme";
import { Empty, Title } from "./parts/text";
import { AgentView } from "./views/agent";
import { Agents } from "./views/agents";
import { ChangeView } from "./views/change";
import { ChangesView } from "./views/changes";
import { ItemView } from "./views/file";
import { Fleet } from "./views/fleet";
import { Frame } from "./views/frame";
import { Login } from "./views/login";
import "./style/tokens.css";
import "./style/base.css";
import "./style/parts.css";
import "./style/views.css";

function View() {
  const { parts, query } = route.value;
  const [first, second, third, ...rest] = parts;
  const key = parts.join("/");
  if (first === undefined) return <Fleet key={key} />;
  if (rest.length === 0 && first === "agents") {
    if (second === undefined) return <Agents key={key} />;
    if (third === undefined) return <AgentView key={second} id={second} part="changes" />;
    if (third === "files") return <AgentView key={second} id={second} part="files" />;
    const path = query.get("path");
    if ((third === "file" || third === "package") && path !== null) {
      return <ItemView key={`${key} ${path}`} id={second} path={path} item={third} />;
    }
  }
  if (first === "changes" && third === undefined) {
    if (second === undefined) return <ChangesView key={key} />;
    return <ChangeView key={key} id={second} />;
  }
  return (
    <>
      <Title title="No such view" />
      <Empty title="This page does not exist">
        <a href={place([])}>To the fleet</a>
      </Empty>
    </>
  );
}

function App() {
  if (session.value === null) return <Login />;
  return (
    <Frame>
      <View />
    </Frame>
  );
}

apply();
listen();
tick();
const root = document.getElementById("app");
if (root) render(<App />, root);
