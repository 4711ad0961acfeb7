"""The live page: who may look, act, and see payloads."""

from mutations.mutation import Mutation

MOUNTED = "tests/dashboard/test_page_mounted.py"
RECORDS = "tests/dashboard/test_page_records.py"

MUTATIONS = (
    Mutation(
        "an-identity-is-what-is-not-none",
        "An application's False, or empty name, is an identity.",
        "partbox/dashboard/access.py",
        "        return str(identity) if identity else Refusal",
        "        return str(identity) if identity is not None else Refusal",
        (f"{MOUNTED}::test_an_authorization_result_that_names_no_user_is_a_refusal",),
    ),
    Mutation(
        "cookies-for-other-sites",
        "Another site's page acts by the cookie of who visits it.",
        "partbox/dashboard/access.py",
        '    if request.method == "GET" and headers.get("sec-fetch-mode") == "navigate":\n',
        '    if headers.get("sec-fetch-mode") == "navigate":\n',
        (f"{MOUNTED}::test_requests_from_another_site_cannot_use_a_cookie_but_its_links_still_open_the_page",),
    ),
    Mutation(
        "payloads-for-who-looks",
        "Whoever may look sees payloads.",
        "partbox/dashboard/routes.py",
        ', self._answer_payload, "payload")',
        ", self._answer_payload)",
        (f"{RECORDS}::test_a_payload_is_sent_only_when_requested_with_permission",),
    ),
    Mutation(
        "payloads-for-every-token",
        "The token shows payloads though the setting does not allow it.",
        "partbox/dashboard/access.py",
        '        if action == "payload" and not self.may_see_payloads:\n',
        '        if action == "payload" and not self.token:\n',
        (f"{RECORDS}::test_a_payload_is_sent_only_when_requested_with_permission",),
    ),
)
