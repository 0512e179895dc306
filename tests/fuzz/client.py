"""A client written from the documented examples: it logs in, pages through the agents, restarts
one, follows the command, creates a read-only user, and logs out."""

from server import Server


def items(answer):
    return answer["data"]["affected_items"]


def main():
    with Server() as server:
        token = server.login()

        def done(method, path, body=None, token=token):
            status, answer = server.ask(method, path, token, body)
            assert status == 200, (method, path, status, answer)
            return answer

        server.until_active()
        for number in range(1, 26):
            done("POST", "/agents", {"name": f"paged-{number:02}"})
        seen, offset = [], 0
        while True:
            page = done("GET", f"/agents?offset={offset}&limit=10&select=id,name&sort=+id")
            if not items(page):
                break
            seen += [item["id"] for item in items(page)]
            offset += len(items(page))
        assert len(seen) == len(set(seen)) == page["data"]["total_affected_items"] == 27, seen
        assert items(done("GET", "/agents?q=name~paged;name!=paged-01&limit=1&sort=-name"))

        answer = done("PUT", "/agents/001/restart")
        assert answer["error"] == 0 and items(answer) == ["001"], answer
        command = answer["data"]["command"]
        assert done("GET", f"/commands/{command}")["data"]["command"]["counts"]["total"] == 1
        answer = done("PUT", "/agents/restart?agents_list=002,999,000")
        codes = sorted(item["error"]["code"] for item in answer["data"]["failed_items"])
        assert answer["error"] == 1 and codes == [1701, 1703, 1707], answer

        server.reader(token, "watcher", "Watching-1")
        reader = server.login("watcher", "Watching-1")
        status, answer = server.ask("PUT", "/agents/001/restart", reader)
        assert status == 403 and answer["error"] == 4000, answer
        renewed = done("POST", "/security/user/renew", token=reader)["data"]["token"]
        done("DELETE", "/security/user/authenticate", token=renewed)
        assert server.ask("GET", "/agents", reader)[0] == 401
        actions = [row["action"] for row in items(done("GET", "/audit"))]
        assert "security:create_user" in actions and "agent:restart" in actions, actions
    print("client: logged in, paged, restarted, followed, refused, logged out")


main()
