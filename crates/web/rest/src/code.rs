//! All error codes of the API, each with its HTTP status, text and remedy. The numbers are those of the
//! 4.x API; the texts are our own.

use axum::http::StatusCode;

/// Declares the codes and their table, so that every code has a status, a text and a remedy.
macro_rules! codes {
    ($($name:ident = $number:literal, $status:ident, $text:literal, $remedy:literal;)*) => {
        /// The code of an error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Code {
            $($name = $number,)*
        }

        /// Every code.
        const ALL: &[Code] = &[$(Code::$name,)*];

        impl Code {
            const fn row(self) -> Row {
                match self {
                    $(Self::$name => Row {
                        status: StatusCode::$status,
                        text: $text,
                        remedy: $remedy,
                    },)*
                }
            }
        }
    };
}

/// The status, text and remedy of a code.
struct Row {
    status: StatusCode,
    text: &'static str,
    remedy: &'static str,
}

impl Code {
    /// Returns the number that clients see.
    pub fn number(self) -> u16 {
        self as u16
    }

    pub fn status(self) -> StatusCode {
        self.row().status
    }

    pub fn text(self) -> &'static str {
        self.row().text
    }

    pub fn remedy(self) -> &'static str {
        self.row().remedy
    }

    /// Returns true if a limit of the server refused the request before any node saw it.
    pub fn is_limit(self) -> bool {
        (6_000..7_000).contains(&self.number())
    }
}

/// Returns all numbers with their HTTP status, text and remedy, ascending. Used for the reference.
pub fn error_codes() -> Vec<(u16, u16, &'static str, &'static str)> {
    let row = |code: &Code| {
        let Row { status, text, remedy } = code.row();
        (code.number(), status.as_u16(), text, remedy)
    };
    let mut rows: Vec<_> = ALL.iter().map(row).collect();
    rows.sort_unstable();
    rows
}

codes! {
    Internal = 1000, INTERNAL_SERVER_ERROR, "the server failed to answer",
        "look into the server's log";
    FileInaccessible = 1005, BAD_REQUEST, "the file cannot be read or written",
        "let the server's user read and write the file and its folder";
    FileMissing = 1006, BAD_REQUEST, "there is no such file",
        "name an existing file";
    Busy = 1017, SERVICE_UNAVAILABLE, "the server is not ready for this request",
        "try again a little later";
    FieldMissing = 1103, BAD_REQUEST, "no such field",
        "leave field out to see those there are";
    SectionMissing = 1106, BAD_REQUEST, "no such section",
        "leave section out to see those there are";
    FileEmpty = 1112, BAD_REQUEST, "the file is empty",
        "send the file as the body";
    RuleFileInvalid = 1113, BAD_REQUEST, "not a Sigma rule",
        "correct what the message names and send it again";
    GroupConfigurationInvalid = 1114, BAD_REQUEST, "not a configuration that a group may have",
        "fix the line named in the error; docs/reference/groups.md lists what is allowed";
    ConfigurationInvalid = 1125, BAD_REQUEST, "not a configuration that this server can run with",
        "correct what the message names; `holdfast config check server FILE` prints the same";
    SortFieldInvalid = 1403, BAD_REQUEST, "not a field to sort by",
        "name one of the fields that the detail lists";
    LimitTooLarge = 1405, BAD_REQUEST, "limit is above the maximum of 100000",
        "ask for pages with offset and limit";
    QueryInvalid = 1407, BAD_REQUEST, "q is not understood",
        "write field, operator and value, joined with ; (and) or , (or)";
    QueryFieldInvalid = 1408, BAD_REQUEST, "q names a field that there is not",
        "name one of the fields of an item";
    QueryOperatorInvalid = 1409, BAD_REQUEST, "q has no such operator",
        "use one of = != < > ~";
    TimeframeInvalid = 1411, BAD_REQUEST, "not a timeframe",
        "write a number with d, h, m or s, for example 7d";
    DateInvalid = 1412, BAD_REQUEST, "not a date",
        "write RFC 3339, for example 2026-11-21T18:52:02Z";
    RuleFileMissing = 1415, BAD_REQUEST, "no such rules file",
        "GET /rules/files lists the files";
    AgentMissing = 1701, NOT_FOUND, "agent does not exist",
        "GET /agents lists the agents";
    ServerItself = 1703, BAD_REQUEST, "not possible for agent 000, the server itself",
        "name another agent";
    AgentNameTaken = 1705, BAD_REQUEST, "there is an agent with the same name already",
        "choose another name, or remove the other agent first";
    AgentAddressTaken = 1706, BAD_REQUEST,
        "there is an agent with the same address already, or the address is not one",
        "use another address, or any";
    AgentNotActive = 1707, BAD_REQUEST, "agent is not active",
        "wait until the agent is connected";
    AgentNumberTaken = 1708, BAD_REQUEST, "there is an agent with the same number already",
        "leave the number out to draw the next";
    KeyTooShort = 1709, BAD_REQUEST, "the key is too short",
        "give a key of 64 characters";
    GroupMissing = 1710, NOT_FOUND, "group does not exist",
        "name one of the existing groups";
    GroupExists = 1711, BAD_REQUEST, "group already exists",
        "choose another name";
    DefaultGroup = 1712, BAD_REQUEST, "the group default cannot be deleted",
        "leave it out";
    GroupNameReserved = 1713, BAD_REQUEST, "not a name that a group may have",
        "choose another name than ., .., all, ar.conf and agent-template.conf";
    GroupNameInvalid = 1722, BAD_REQUEST, "not a name of a group",
        "use letters, digits, dot, dash and underscore";
    SelectFieldInvalid = 1724, BAD_REQUEST, "not a field to select",
        "name one of the fields that the detail lists";
    AgentFilteredOut = 1731, BAD_REQUEST, "agent does not match the filters",
        "look at the agent and change the filters";
    AgentNotInGroup = 1734, BAD_REQUEST, "agent is not in the group",
        "GET /groups/GROUP/agents lists the agents of a group";
    TooManyGroups = 1737, BAD_REQUEST, "an agent can be in at most 128 groups",
        "remove it from another group first";
    AgentNameInvalid = 1738, BAD_REQUEST, "the name of an agent is 2 to 128 of A-Z a-z 0-9 . _ -",
        "choose another name";
    OnlyDefaultGroup = 1745, BAD_REQUEST, "the agent is in no other group than default",
        "put it into another group instead";
    AgentInGroup = 1751, BAD_REQUEST, "the agent is in the group already",
        "nothing is left to do";
    OtherGroupsDenied = 1752, BAD_REQUEST,
        "the caller may not remove the agent from one of its other groups",
        "omit force_single_group, or ask for group:modify_assignments on its groups";
    ScanTooNew = 1760, BAD_REQUEST,
        "only possible for agents of versions below 3.12, of which there are none here",
        "remove the agent to clear what is known of it";
    RuleFileExists = 1905, BAD_REQUEST, "the file exists already",
        "add overwrite=true to replace it";
    RuleFileToChangeMissing = 1906, BAD_REQUEST, "no such rules file",
        "GET /rules/files lists the files";
    ConfigurationNotText = 1911, BAD_REQUEST, "the configuration is not UTF-8 text",
        "send it as UTF-8";
    GroupConfigurationEmpty = 1912, BAD_REQUEST, "the configuration of the group is empty",
        "send the configuration as the body; <agent_config/> sets nothing";
    OffsetTooLarge = 2003, BAD_REQUEST, "offset is too large for the database",
        "give an offset of at most 9223372036854775807";
    Timeout = 3021, INTERNAL_SERVER_ERROR, "the request took too long",
        "ask for less, or add wait_for_complete=true";
    NodeMissing = 3022, BAD_REQUEST, "no such node",
        "GET /cluster/nodes lists the nodes";
    Denied = 4000, FORBIDDEN, "permission denied",
        "ask an administrator for a role that allows it";
    NothingToChange = 4001, BAD_REQUEST, "the request changes nothing",
        "name what is to be changed";
    RoleMissing = 4002, NOT_FOUND, "role does not exist",
        "GET /security/roles lists the roles";
    NameOrRuleInvalid = 4003, BAD_REQUEST, "not a name, or not a rule",
        "use 1 to 64 characters, and operators with objects for a rule";
    NameOrRuleExists = 4005, BAD_REQUEST, "there is such a name or rule already",
        "choose another name or rule";
    PolicyInvalid = 4006, BAD_REQUEST, "not a policy",
        "give actions, resources and the effect allow or deny";
    PolicyMissing = 4007, NOT_FOUND, "policy does not exist",
        "GET /security/policies lists the policies";
    Reserved = 4008, BAD_REQUEST, "it belongs to the program and cannot be changed",
        "make one of your own: its number is above 99";
    PolicyExists = 4009, BAD_REQUEST, "there is such a policy already",
        "use the one there is, or choose another name";
    PolicyNotLinked = 4010, BAD_REQUEST, "the role does not have this policy",
        "GET /security/roles shows what it has";
    PolicyLinked = 4011, BAD_REQUEST, "the role has this policy already",
        "take it away first to move it to another place";
    PolicyNameExists = 4013, BAD_REQUEST, "there is a policy of this name already",
        "choose another name";
    RoleNotLinked = 4016, BAD_REQUEST, "the user does not have this role",
        "GET /security/users shows what it has";
    RoleLinked = 4017, BAD_REQUEST, "the user has this role already",
        "take it away first to move it to another place";
    EndpointMissing = 4020, BAD_REQUEST, "no operation of that name takes an action",
        "leave endpoint out to see all actions";
    SecurityRuleMissing = 4022, NOT_FOUND, "security rule does not exist",
        "GET /security/rules lists the rules";
    RuleLinked = 4023, BAD_REQUEST, "the rule gives this role already",
        "nothing is left to do";
    RuleNotLinked = 4024, BAD_REQUEST, "the rule does not give this role",
        "GET /security/roles shows what gives it";
    UserExists = 5000, BAD_REQUEST, "there is a user of this name already",
        "choose another name";
    UserMissing = 5001, NOT_FOUND, "user does not exist",
        "GET /security/users lists the users";
    UserReserved = 5004, BAD_REQUEST, "the user belongs to the program and cannot be changed",
        "create a user of your own";
    PasswordInvalid = 5007, BAD_REQUEST,
        "the password needs 8 to 64 characters with a lower-case and an upper-case letter, a digit and a symbol",
        "choose another password";
    OwnAccount = 5008, BAD_REQUEST, "a user cannot delete their own account",
        "ask another administrator";
    PasswordLength = 5009, BAD_REQUEST, "the password needs 8 to 64 characters",
        "choose another password";
    OnlyOwnPassword = 5011, BAD_REQUEST, "only the user itself may change this password",
        "log in as that user";
    LoginBlocked = 6000, FORBIDDEN,
        "Limit of login attempts reached. The current IP has been blocked due to a high number of login attempts",
        "wait until the block ends";
    TooManyRequests = 6001, TOO_MANY_REQUESTS, "too many requests in this minute",
        "wait, or raise the limit in the server's configuration";
    ContentTypeInvalid = 6002, NOT_ACCEPTABLE, "this operation takes another content type",
        "send the body as one that it takes";
    RunAsForbidden = 6004, FORBIDDEN, "this user may not log in with an authorization context",
        "ask an administrator for PUT /security/users/{user_id}/run_as";
}
