"""Hooks of Schemathesis for requests that may end the session they are sent in. Each request gets
the credentials it needs, and a session that ended is started again."""

import base64
import json
import os
import urllib.error
import urllib.request

import schemathesis

URL = os.environ["HOLDFAST_URL"]
BASIC = "Basic " + base64.b64encode(os.environ["HOLDFAST_LOGIN"].encode()).decode()
LOGIN = "/security/user/authenticate"
session = {}


def bearer():
    """Returns the session's header. If no new session can be started, returns the last one."""
    if not session.get("works"):
        request = urllib.request.Request(URL + LOGIN, headers={"Authorization": BASIC}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                token = json.load(answer)["data"]["token"]
                session.update(works=True, header=f"Bearer {token}")
        except urllib.error.HTTPError as refused:
            assert refused.code < 500, f"login: {refused.code}"
    return session.get("header", "Bearer none")


@schemathesis.hook
def before_call(context, case, kwargs):
    login = case.path.startswith(LOGIN) and case.method.upper() != "DELETE"
    case.headers = {**(case.headers or {}), "Authorization": BASIC if login else bearer()}


@schemathesis.hook
def after_call(context, case, response):
    may_end = response.request.method != "GET" and case.path.startswith("/security")
    if response.status_code == 401 or may_end:
        session["works"] = False
