"""A client of the 4.x API that others published (wazuh-api-client on PyPI), unmodified, against the
real program: it logs in, lists, adds, restarts and scans as it does with any server of that API."""

import asyncio

from server import PASSWORD, Server
from wazuh_api_client import AsyncWazuhClient
from wazuh_api_client.managers import AgentsManager, SysCheckManager

# By default it lists only agents that run their groups' configuration.
ALL = {"group_config_status": None}


def items(answer):
    assert answer.error == 0, answer
    return answer.data["affected_items"]


async def talk(url):
    async with AsyncWazuhClient(url, "4", "admin", PASSWORD) as client:
        agents, files = AgentsManager(client), SysCheckManager(client)
        names = [agent["name"] for agent in items(await agents.list(sort="+id", **ALL))]
        assert names[2:] == ["published-0", "published-1", "published-2"], names
        found = items(await agents.list(search="published-1", **ALL))
        assert [agent["id"] for agent in found] == ["003"], found
        page = items(await agents.list(q="name~published", limit=1, sort="-name", **ALL))
        assert [agent["name"] for agent in page] == ["published-2"], page
        for agent in await agents.list_outdated(), await agents.list_without_group():
            assert items(agent) == [], agent
        assert len(items(await agents.list_distinct(fields=["name"]))) == 4
        counts = await client.request("GET", client.build_endpoint("/agents/summary/status"))
        assert counts["data"]["connection"]["total"] == 4, counts
        key = items(await agents.get_key(agent_id="002"))
        assert key[0]["id"] == "002" and len(key[0]["key"]) > 64, key
        assert items(await agents.restart_agents(agents_list=["001"])) == ["001"]
        assert items(await agents.restart_agent(agent_id="001"))[0] == "001"
        assert items(await agents.force_reconnect_agents(agents_list=["001"])) == ["001"]
        seen = items(await files.get_results(agent_id="001"))
        assert any(file["file"].endswith("/a.txt") for file in seen), seen
        assert set(items(await files.get_last_scan_datetime(agent_id="001"))[0]) == {"start", "end"}


def main():
    with Server() as server:
        server.until_active()
        server.until_scanned()
        token = server.login()
        # Its own function for adding an agent fails before it sends a request.
        for number in range(3):
            body = {"name": f"published-{number}", "ip": "any"}
            assert server.ask("POST", "/agents", token, body)[0] == 200
        asyncio.run(talk(server.url))
    print("published client: logged in, listed, added, restarted, looked at files")


main()
