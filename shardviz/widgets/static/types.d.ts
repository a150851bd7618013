// What the kernel sends (the model's traits, as JSON) and what the page's modules share. Only the type checker reads
// this file. Numbers come with their text: the page formats nothing.

/** A mesh axis by its name, or a part of one: `[name, the size of what is before it, its own size]`. */
export type Axis = string | [string, number, number];

/** A spec: for each dimension the axes that cut it, the most major first. */
export type Dims = Axis[][];

export interface MeshAxis {
  name: string;
  size: number;
  type: string;
  /** Its colour on light and on dark ground, and the ink on top of each. */
  light: string;
  dark: string;
  ink: string;
  dark_ink: string;
}

export interface Mesh {
  axes: MeshAxis[];
  devices: number;
  text: string;
  /** The number of the device at each place; empty where they are in order. */
  ids: number[];
}

/** What an axis may do in a dimension: 1 cut it, `[words]` move there, or the reason why neither. */
export type Choice = 1 | [string] | string;

/** A node of the tree of arguments or outputs that has others under it. */
export interface Branch {
  path: string;
  label: string;
  depth: number;
  leaves: number;
  bytes: string;
}

/** An argument or an output. */
export interface Leaf {
  path: string;
  label: string;
  depth: number;
  leaves?: undefined;
  name: string;
  shape: number[];
  dtype: string;
  bytes: string;
  changed: boolean;
  /** The shape on one device. */
  shard?: number[];
  /** null where no PartitionSpec says it. */
  dims: Dims | null;
  text: string;
  /** By dimension, then by axis of the mesh. */
  choices: Choice[][];
  /** An argument only. */
  donated?: boolean;
  /** An argument only: the names of those that a change may go to as well. */
  twins?: string[];
  /** An output only: whether the compiler chose its spec. */
  chosen?: boolean;
}

export interface Tree {
  rows: (Branch | Leaf)[];
  hidden: number;
  leaves: number;
}

/** Why the last edit was refused, and the place where the page says so. */
export interface EditError {
  place: "argument" | "output" | "mesh" | "target" | "rule" | "plan" | "order" | "internal";
  message: string;
  detail: string;
  argument: string | null;
  dimension: number | null;
}

export interface Failure {
  kind: string;
  message: string;
  stderr: string;
}

export interface Status {
  level: string;
  status: string;
  message: string;
  doing: string;
  busy: boolean;
  error: EditError | null;
  failure: Failure | null;
  undo: number;
  redo: number;
  /** The number of the last edit that is answered. */
  seq: number;
  seconds: number | null;
}

export interface Head {
  program: string;
  mesh: string;
  devices: string;
  target: string;
  moved: { axes: Axis[] | null; text: string; title: string }[];
  moved_rest: string[];
  collectives: number;
  runs: string;
  problems: number;
  notes: number;
  changed: number;
  values: number;
  arguments: string;
  flops?: string;
  memory?: MemoryPlan;
  fit?: Fit;
  step?: { label: string; text: string; title: string };
  bound?: { what: string; over: string; then: string; title: string };
  trouble?: string;
}

/** Whether the step fits into the memory of a device. */
export interface Fit {
  verdict: "yes" | "no" | "unknown";
  label: string;
  text: string;
  share: number;
  over: string;
  title: string;
}

export interface MemoryPlan {
  parts: { label: string; text: string; share: number; title: string }[];
  total: string;
  peak: string;
  peak_title: string;
  target: string;
  room: { fits: boolean; text: string } | null;
  caution: string;
  detail: string;
}

export interface Collective {
  kind: string;
  axes: Axis[] | null;
  bytes: string;
  count: string;
  total: string;
  phases: string[];
  seconds: string;
}

export interface SourceLine {
  n: number;
  text: string;
  /** `model.py:20`, where something is known of the line. */
  at?: string;
  values?: { name: string; label: string; dims: Dims | null; shape: string }[];
  /** How many values of the line are not among `values`. */
  more?: number;
  moved?: string;
  collectives?: Collective[];
  /** Shares of the longest line: of communication, or of bytes; and of compute. */
  heat?: number;
  computing?: number;
  seconds?: string;
  compute?: string;
}

export interface Source {
  files: { file: string; lines: SourceLine[] }[];
  communication: string;
}

/** One side of a shard map: which dimension lies along it, and the axes that cut it. */
export interface Side {
  dimension: number | null;
  size: number;
  text: string;
  bars: { axis: Axis; spans: [text: string, cells: number][] }[];
  cut: boolean;
  slices: string[];
}

export interface ShardMap {
  name: string;
  label: string;
  shape: string;
  dtype: string;
  dims: Dims | null;
  bytes: string;
  source: string;
  line: string;
  remark: string;
  /** Whether the value does not occur at this level. */
  missing?: boolean;
  /** The text of a sharding that cannot be drawn; then nothing below is there. */
  sharding?: string;
  shard: string;
  text: string;
  notes: string[];
  replicas: number;
  /** By panel, row and column: the devices that hold the slice. */
  labels: string[][][];
  /** By place in the mesh: the cell that the device holds, -1 for none; empty in very large meshes. */
  cells: number[];
  rows: Side;
  columns: Side;
  panels: { text: string; index: string[] }[];
}

/** A cell of a shard map. */
export interface Cell {
  panel: number;
  row: number;
  column: number;
}

export interface Machines {
  target: string;
  label: string;
  kind: string;
  words: string;
  remark: string;
  lack: { text: string; install: string; why: string } | null;
  examples: string[];
  trouble: string;
  devices: string;
  groups: MachineGroup[];
}

export interface MachineGroup {
  kind: string;
  ready: boolean;
  missing: string;
  install: string;
  chips: {
    name: string;
    memory: string;
    options: { target: string; label: string; title: string; on: boolean }[];
    none?: string;
  }[];
}

/** Which values and collectives the tables show. */
export interface Query {
  text?: string;
  changed?: boolean;
  line?: string;
  sort?: "program" | "bytes";
}

/** A change that is asked of the kernel; `session/edits.py` says which fields each `op` takes. */
export interface Edit {
  op: string;
  [field: string]: unknown;
}

/** What a click selects: a kind of thing (`value`, `line`, `device`, `collective`), and which. */
export type Selects = [kind: string, id: string];

/** A few words, or something small with a look of its own; `view/document.py` says what each field is for. */
export interface Piece {
  t: string;
  k?: "code" | "axes" | "mesh" | "spec" | "bar" | "line";
  // deno-lint-ignore no-explicit-any
  v?: any;
  b?: boolean;
  q?: boolean;
  tone?: "good" | "warn" | "bad";
  tip?: string;
  sel?: Selects;
}

/** Pieces as they are sent: what is words and nothing else as a string, what is not there left out. */
export type Inline = string | Partial<Piece> | (string | Partial<Piece>)[];

/** A stretch of a bar; its share is of the longest bar beside it. */
export interface Bar {
  share: number;
  axes?: Axis[];
  tip?: string;
  role?: "work" | "room";
}

export interface Column {
  title?: string;
  right?: boolean;
  wrap?: boolean;
}

export interface Row {
  cells: Inline[];
  detail?: Block[];
  sel?: Selects;
  marked?: boolean;
}

export interface Table {
  block: "table";
  columns: Column[];
  rows?: Row[];
  caption?: string;
  /** Rows that are not among `rows`. */
  more?: number;
  noun?: string;
  name?: string;
}

export interface Section {
  block: "section";
  title: string;
  lead?: Inline;
  blocks?: Block[];
  fold?: "open" | "closed";
  name?: string;
}

/** What is drawn: a `Picture`, or what only has a description here. */
export interface Figure {
  block: "figure";
  caption?: string;
  // deno-lint-ignore no-explicit-any
  of: any;
  name?: string;
}

export type Block =
  | Table
  | Section
  | { block: "p"; pieces?: Inline; label?: string; quiet?: boolean; name?: string }
  | { block: "beside"; blocks: Block[] }
  | Figure;

/** What there is to say of a subject, as `paint.json` gives it. */
export interface Document {
  title?: Inline;
  lead?: Inline[];
  blocks: Block[];
}

/** A tab that is a Document, with what is no part of one; empty while nobody looks at it. */
export interface Pane {
  document?: Document;
  said?: string;
  finishable?: boolean;
  problems?: number;
  notes?: number;
}

export interface Traits {
  mesh: Mesh;
  inputs: Tree;
  outputs: Tree;
  status: Status;
  head: Head;
  source: Source;
  shards: ShardMap;
  targets: Machines;
  problems: Pane & { problems: number; notes: number };
  query: Query;
  edits: (Edit & { seq: number })[];
  tab: string;
  selected: string;
  selected_at: string;
  reading: string;
  /** The device that is picked, by its place in the mesh; below 0 for none. */
  device: number;
  comm_id: string;
  plan_code: string;
  _css: string;
  values: Pane;
  collectives: Pane;
  rosetta: Untyped;
  rules: Untyped;
  costs: Pane;
  machine: Untyped;
  company: Untyped;
  memory: Pane;
}

/** What modules without types show. */
// deno-lint-ignore no-explicit-any
type Untyped = any;

/** What anywidget gives a page: the traits, to read, write and follow. */
export interface Model {
  get<K extends keyof Traits>(key: K): Traits[K];
  set<K extends keyof Traits>(key: K, value: Traits[K]): void;
  save_changes(): void;
  on(event: string, listener: () => void): void;
  off(event: string, listener: () => void): void;
  widget_manager?: { get_model(id: string): Promise<{ comm_live?: boolean }> };
}

/** What every part of the page is given: the traits, and what a person may do. */
export interface Context {
  /** Whether no kernel is behind the page any more; "gone" is told when that changes. */
  gone: boolean;
  /** Whether a change of an argument is made to its twins too. */
  twins: boolean;
  get<K extends keyof Traits>(key: K): Traits[K];
  /** Calls `listener` when a trait changes; and for "cell" and "gone", which are the page's own. */
  on(key: string, listener: () => void): void;
  /** Draws now if the tab is shown, else when it next is. */
  when(tab: string, draw: () => void): void;
  /** Says that a tab is shown now. */
  shown(tab: string): void;
  /** Asks for a change; returns its number. `status.seq` reaches it when the kernel has answered. */
  edit(edit: Edit): number;
  select(name: string): void;
  query(change: Query): void;
  /** Has any notation of a sharding read. */
  read(text: string): void;
  setTab(tab: string): void;
  /** Selects a device by its place in the mesh; below 0 for none. */
  pickDevice(place: number): void;
  /** Selects a cell of a value's shard map, where devices cannot be told one by one. */
  pickCell(name: string, cell: Cell | null): void;
  pickedCell(name: string): Cell | null;
  /** Opens or closes the menu of one dimension at the slot with the test id `id`. */
  openMenu(what: "inputs" | "outputs", name: string, dimension: number, id: string): void;
  /** Shows a line of the source, `model.py:20`. */
  showLine(at: string): void;
  /** Asks whether a kernel is behind the page, now and whenever that may have changed. */
  watchKernel(): void;
  close(): void;
}

export type Child = Node | string | number | boolean | null | undefined | Child[];

/** Attributes of an element; `on...` are listeners, `style` CSS properties, `id` a data-testid. */
export interface Props {
  style?: Record<string, string | number> | null;
  onclick?: (event: MouseEvent) => unknown;
  onkeydown?: (event: KeyboardEvent) => unknown;
  onblur?: (event: FocusEvent) => unknown;
  oninput?: (event: Event) => unknown;
  onchange?: (event: Event) => unknown;
  [attribute: string]: unknown;
}
