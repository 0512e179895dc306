// Shapes of the REST API's answers, as docs/reference/api.md has them. Absent means unknown.

export type AgentStatus = "active" | "disconnected" | "never_connected" | "pending";

export type ChangeKind = "created" | "modified" | "deleted" | "moved" | "transient";

export type CauseKind = "unexplained" | "package" | "deployment";

/** `silent` or `left`. */
export type AgentState = "silent" | "left";

export interface Summary {
  status: Partial<Record<AgentStatus, number>>;
  groups: Record<string, number>;
  os: Record<string, number>;
  /** Changes by cause; absent if the user may not read those of every agent. */
  changes?: Record<CauseKind, number>;
  /** Agents that are not heard although they did not say goodbye. */
  silent: { agents: number; since?: string; names: string[] };
}

export interface Agent {
  id: string;
  name?: string;
  ip?: string;
  registerIP?: string;
  status?: AgentStatus;
  /** What the status does not tell: not heard without a goodbye, or gone for good. */
  state?: AgentState;
  silent_since?: string;
  /** Seconds of silence after which the agent is removed. */
  ephemeral_s?: number;
  dateAdd?: string;
  lastKeepAlive?: string;
  disconnection_time?: string;
  version?: string;
  node_name?: string;
  group?: string[];
  os?: {
    name?: string;
    platform?: string;
    version?: string;
    codename?: string;
    arch?: string;
    uname?: string;
  };
}

/** A file as `GET /syscheck/{id}` lists it. */
export interface FileItem {
  file: string;
  path_hex?: string;
  type: string;
  size?: number;
  mode?: string;
  perm?: string;
  uid?: string;
  gid?: string;
  uname?: string;
  gname?: string;
  inode?: number | string;
  device?: string;
  links?: number;
  mtime?: string;
  ctime?: string;
  date?: string;
  md5?: string;
  sha1?: string;
  sha256?: string;
  blake3?: string;
  target_path?: string;
  xattrs?: Record<string, string>;
  flags?: string[];
  error?: string;
}

/** A file as changes carry it. */
export interface FileBody {
  path: string;
  path_hex?: string;
  type?: string;
  size?: number;
  mode?: string;
  uid?: string;
  gid?: string;
  owner?: string;
  group?: string;
  mtime?: string;
  ctime?: string;
  inode?: string;
  device?: string;
  links?: number;
  target_path?: string;
  hash?: Partial<Record<"md5" | "sha1" | "sha256" | "blake3", string>>;
  xattrs?: Record<string, string>;
  flags?: string[];
  error?: string;
}

/** An installed package, as changes and `GET /states/inventory-packages` carry it. */
export interface PackageBody {
  name: string;
  version: string;
  architecture: string;
  type?: string;
  vendor?: string;
  description?: string;
  size?: number;
  installed?: string;
  source?: string;
  category?: string;
  priority?: string;
  multiarch?: string;
  /** State in the words of dpkg, unless it is installed. */
  state?: string;
}

/** Effects by action and resource, as `GET /security/users/me/policies` returns them. */
export type Grants = Record<string, string | Record<string, "allow" | "deny">>;

/** A user: number as text, and its name. */
export interface UserBody {
  id: string;
  name?: string;
  effective?: UserBody;
}

/** A program that may have made a change. */
export interface ProgramBody {
  executable: string;
  name: string;
  hash?: { sha256: string };
  command_line?: string;
  working_directory?: string;
  /** True if the host has another file at the path of the executable, or none. */
  foreign?: boolean;
}

/** A process, with the one that created it. */
export interface ProcessBody {
  pid: number;
  start?: string;
  /** Path; absent if it is unknown or ambiguous. */
  executable?: string;
  name?: string;
  hash?: { sha256: string };
  command_line?: string;
  working_directory?: string;
  foreign?: boolean;
  /** The programs that come into question, in the order in which the process ran them. */
  candidates?: ProgramBody[];
  /** Other programs that the process ran when it made changes before its last one. */
  earlier?: ProgramBody[];
  parent?: ProcessBody;
}

/** A writer as `seen` lists it. */
export interface Actor {
  attribution: string;
  reason?: string;
  executables?: { path?: string; sha256?: string }[];
}

/** The notifications of a change. */
export interface Seen {
  found_by?: string;
  first?: string;
  last?: string;
  notifications?: number;
  attribution?: string;
  session?: number;
  tty?: string;
  actors?: Actor[];
  more?: number;
}

/** The explanation of a change. */
export interface Cause {
  kind: CauseKind;
  detail?: string;
  /** Shared by the changes of one transaction or run. */
  id?: string;
  tool?: string;
  package?: { name: string; version?: string; previous_version?: string };
  /** True if the content is what the package installed. */
  content_matches?: boolean;
  /** True if a process of the tool was seen making the change. */
  writer_matches?: boolean;
  /** True if the change opens a door: it is listed and counted with the unexplained. */
  attention?: boolean;
}

export interface Change {
  id: string;
  agent: { id: string; name?: string };
  time: string;
  received?: string;
  /** What the agent's clock showed, where that was more than a day off; `time` is the receipt then. */
  agent_time?: string;
  kind: ChangeKind;
  path: string;
  /** The former path of what was moved. */
  from?: string;
  changed_fields?: string[];
  cause?: Cause;
  /** The changes that this line represents; absent for a single change. */
  collapsed?: { changes: number; packages?: number };
  /** Files that existed only between two checks; only of `transient`. */
  transient?: { count: number; names?: string[] };
  process?: ProcessBody;
  user?: UserBody;
  container?: { id: string };
  /** Absent if a scan found the change. */
  seen?: Seen;
  before: FileBody | PackageBody | null;
  after: FileBody | PackageBody | null;
}

/** An interval that is not, or not fully, vouched for. */
export interface Gap {
  id?: string;
  agent: { id: string; name?: string };
  kind: string;
  path?: string;
  from: string;
  /** Null while the gap is open. */
  to: string | null;
  found?: number;
  detail?: string;
}

/** An agent's last scan, as `GET /syscheck/{id}/last_scan` returns it. */
export interface WatchedRoot {
  root: string;
  /** First directory of the file system, or the path of the gap. */
  path: string;
  file_system?: string;
  state: "realtime" | "scan" | "gap";
  method: string;
  reason?: string;
  remedy?: string;
}

/** How an agent watches its paths. */
export interface Watched {
  scan_interval_s: number;
  next_scan: string;
  attribution: boolean;
  attribution_reason: string;
  roots: WatchedRoot[];
  /** Number of further roots. */
  more: number;
}

export interface LastScan {
  /** Null before the first one. */
  start: string | null;
  /** Null while it runs. */
  end: string | null;
  /** End of the scan before, while one runs; absent during the first one. */
  previous_end?: string;
}

/** Whether an agent runs its groups' configuration. */
export interface GroupSync {
  synced: boolean;
  /** The configuration that the agent refused, and why. */
  refused?: { mergedSum: string; detail: string };
}

/** The outcome of a command at an agent. */
export interface Outcome {
  agent: string;
  state: "pending" | "sent" | "acknowledged" | "failed" | "expired" | "cancelled";
  detail: string;
  time: string;
}

export interface List<T> {
  items: T[];
  total: number;
  cursor: string | null;
  /** Number of the last event that the history includes. */
  newest: number | null;
  message: string;
  failed: { code: number; message: string; remediation?: string; ids: string[] }[];
}
