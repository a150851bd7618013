// What the kernel sends (the model's traits, as JSON) and what the page's modules share. Only the type checker reads
// this file. Numbers come with their text: the page formats nothing.

/** A mesh axis by its name, or a part of one: `[name, the size of what is before it, its own size]`. */
export type Axis = string | [string, number, number];

/** A spec: for each dimension the axes that shard it, major first. */
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

/** What an axis may do in a dimension: 1 shard it, `[words]` move there, or the reason why neither. */
export type Choice = 1 | [string] | string;

/** A row of a tree as it is sent: of a branch, whose fourth field says which layers it is like; or of an array. */
export type TreeRow =
  | [depth: number, segment: string, label: string, like?: number]
  | [depth: number, segment: string, label: string, shape: number[], dtype: string, donated: boolean];

/** The tree of arguments or of outputs, which stays as it is. */
export interface Tree {
  rows: TreeRow[];
  leaves: number;
}

/** A sharding that several arrays share. */
export interface Kind {
  /** null where no PartitionSpec says it. */
  dims: Dims | null;
  text: string;
  bytes: string;
  /** Bytes of a device's shard. */
  size: number;
  /** The memory that its shards lie in: `device`, `pinned_host` or `unpinned_host`. */
  memory: string;
  /** By dimension, then by axis of the mesh. */
  choices: Choice[][];
  /** The shape on one device. */
  shard?: number[];
  /** An output: the compiler chose its spec. */
  chosen?: true;
  changed?: true;
  /** An argument that no result needs. */
  unused?: true;
}

/** The arrays' shardings: each distinct one once, the index for each array, and the bytes of each branch. */
export interface Shardings {
  kinds: Kind[];
  at: number[];
  sums: string[];
}

/** Of each array the number of its group of twins, and the places of its dimensions among the logical ones. */
export interface GroupsOf {
  twins: number[];
  /** Of each dimension of each array, the name of the logical dimension that it belongs to; empty for none. */
  dimensions?: string[][];
}

export interface ArrayGroups {
  inputs: GroupsOf;
  outputs: GroupsOf;
}

/** A logical dimension. */
export interface DimensionRow {
  name: string;
  size: string;
  /** The axes that shard it in most arrays. */
  axes: Axis[];
  said: string;
  arrays: string;
  /** Each array with another sharding; in short, grouped by sharding. */
  otherwise: string[];
  but: Inline;
  /** Whether these arrays are a relevant share of the bytes. */
  grave: boolean;
  choices: Choice[];
  several: string[];
}

export interface Dimensions {
  state: "" | "busy" | "found" | "failed";
  /** How far they are, in words. */
  message: string;
  rows: DimensionRow[];
}

export type What = "inputs" | "outputs";

/** A row of a tree as the page has it: a branch, or an array, which has a shape and a place among the arrays. */
export interface TreeNode {
  path: string;
  /** The path with `*` for the numbers of layers. */
  own: string;
  label: string;
  /** What the branches are called that it is in. */
  above: string;
  depth: number;
  like?: number;
  /** Where it stands among the rows, and where its subtree ends. */
  at: number;
  end: number;
  /** How many arrays are below it. */
  count: number;
  branch?: number;
  place?: number;
  shape?: number[];
  dtype?: string;
  donated?: boolean;
}

/** A row that is to be seen: a branch, an array (or the same one of several layers), or what stands for layers. */
export interface Item {
  kind: "branch" | "leaf" | "stack" | "each";
  key: string;
  label: string;
  depth: number;
  closed: boolean;
  node: TreeNode;
  count: number;
  /** Of arrays: the place of the one that stands for all, and how many have another sharding. */
  shown?: number;
  odd?: number;
  above?: string;
}

/** What of a tree is to be seen. */
export interface View {
  text: string;
  filter: string;
  isClosed(key: string, node: TreeNode): boolean;
  isOpen(key: string): boolean;
}

/** Of what the menu is opened, and at which element. */
export type Opening = { what: "dimensions"; name: string; id: string; dimension?: number; layers?: boolean } | {
  what: What;
  name: string;
  id: string;
  dimension?: number;
  layers?: boolean;
};

/** Why the last edit was refused, and the place where the page says so. */
export interface EditError {
  place:
    | "argument"
    | "output"
    | "dimension"
    | "mesh"
    | "target"
    | "options"
    | "rule"
    | "plan"
    | "order"
    | "card"
    | "value"
    | "internal";
  message: string;
  detail: string;
  argument: string | null;
  dimension: number | null;
  /** What the change was to. */
  subject: string | null;
  /** Alternatives, which were tried. */
  alternatives: { text: string; tip: string }[];
}

export interface Failure {
  kind: string;
  message: string;
  stderr: string;
}

export interface Status {
  level: string;
  /** What the level's name means. */
  means: string;
  status: string;
  message: string;
  doing: string;
  /** Seconds that the compile will take at the pace of the last one. */
  expected: number | null;
  busy: boolean;
  error: EditError | null;
  failure: Failure | null;
  undo: number;
  redo: number;
  /** The number of the last edit that is answered. */
  seq: number;
  /** How long the answer took; a recorded answer says so instead. */
  seconds: number | string | null;
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
  /** The compiler's options as flags, and sets of them that go by a name. */
  options: string;
  sets: { name: string; title: string }[];
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
  /** Of a program's texts: which, what its lines must have, the first row. */
  stage?: string;
  find?: string;
  at?: number;
}

/** A change that is asked of the kernel; `explorer/edits.py` says which fields each `op` takes. */
export interface Edit {
  op: string;
  axes?: Axis[];
  [field: string]: unknown;
}

/** An edit that was sent, with its number. */
export type Sent = Edit & { seq: number };

/** What a click selects: a kind of thing (`value`, `line`, `device`, `collective`), and which. */
export type Selects = [kind: string, id: string];

/** A few words, or something small with a look of its own; `view/document.py` says what each field is for. */
export interface Piece {
  t: string;
  k?: "term" | "code" | "axes" | "mesh" | "spec" | "bar" | "line";
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
  role?: "work" | "moved" | "room";
}

export interface Column {
  title?: string;
  right?: boolean;
  wrap?: boolean;
  tip?: string;
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
  /** Whether a click opens what belongs to a row; else it always stands below it. */
  folds?: boolean;
}

/** What a person can change in a table. */
export interface Editor {
  /** What stands in a column in place of the row's words; nothing where these stay. */
  cell?: (row: Row, n: number, column: number) => import("./vendor/preact.d.ts").View;
  /** What stands behind the row. */
  end?: (row: Row, n: number) => import("./vendor/preact.d.ts").View;
  /** The column that holds what belongs to a row; none: it stands below the row. */
  inside?: number;
  /** The columns' widths in characters; else they follow from what is in them. */
  widths?: number[];
}

export type Editors = Record<string, Editor>;

export interface Section {
  block: "section";
  title: string;
  lead?: Inline;
  blocks?: Block[];
  fold?: "open" | "closed";
  name?: string;
}

/** One kind of shapes of a picture, or a key of its legend; `view/picture.py` says what each field is for. */
// deno-lint-ignore no-explicit-any
export type Shape = Record<string, any>;

/** What `Picture.to_json` gives. */
export interface Picture {
  width: number;
  height: number;
  title: string;
  alt: string;
  axes: string[];
  shapes: Shape[];
  keys: Shape[];
  notes: string[];
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
}

/** What is always there. */
export interface Content {
  document: Document;
}

/** A rule as it can be typed; a filter that is a function cannot be. */
export interface RuleFields {
  filter: string | null;
  spec: string;
}

/** The selected value's sharding, and what was read. */
export interface Rosetta extends Pane {
  name?: string;
  label?: string;
  role?: "argument" | "output" | "intermediate" | "";
  read?: Reading | null;
}

/** A pasted text, and what it was read as; without a document it is no sharding, and `error` says why. */
export interface Reading {
  text: string;
  answer: Document;
  document: Document | null;
  same: boolean;
  /** The spec that gives it to the selected value; empty where nothing does. */
  apply: string;
  error: string;
}

/** The key of an order of the devices, or the two axes that stand in each other's place in it. */
export type OrderKey = string | [one: string, other: string];

/** The machine with the mesh on it; without a picture the document says why there is none. */
export interface Machine extends Pane {
  picture?: Picture;
  /** The orders to choose from, a row of the document's table each: their keys, which is the present one, its text. */
  orders?: Content & { keys: OrderKey[]; now: number; listed: string };
}

/** One of a program's texts; `names` are name, title and language of each that there is. */
export interface Stages extends Pane {
  name: string;
  names: [name: string, title: string, kind: string][];
  at: number;
  found: number;
  most: number;
}

/** A line of the source: its number, its share of the longest, its place (`model.py:20`), and what happens on it. */
export interface Line {
  n: string;
  bar?: Bar[];
  at?: string;
  /** What the line takes of the step. */
  amount?: Inline;
  on?: Inline[];
}

export interface Traits {
  stages: Stages;
  mesh: Mesh;
  inputs: Tree;
  outputs: Tree;
  shardings: Shardings;
  out_shardings: Shardings;
  array_groups: ArrayGroups;
  dimensions: Dimensions;
  /** What the page asks the kernel to find out. */
  wants: string;
  status: Status;
  head: Content & { verdict: Document };
  /** A row a card, which selects it; the ids of the one that is open, and of the one that the others are compared with. */
  cards: Content & {
    at: string;
    against: string;
    /** Where each plan that has a time lies on the scatter. */
    points?: { card: string; seconds: number; bytes: number; fits: boolean | null }[];
    /** The bytes that a device has for a program. */
    usable?: number | null;
    /** The longest step, the most memory and the usable memory in words. */
    words?: { seconds: string; bytes: string; usable: string };
  };
  /** The presets that were tried, while they are open; how far a search is, 0 to 1, and what it does. */
  presets: Pane & { share: number | null; search: Document };
  /** What the step waits for, the dearest first. */
  most: Pane & { fixes: number; fix: string };
  /** By line that is open in the source, what it costs and what helps. */
  lines: Record<string, Document>;
  /** The lines that are open in the source. */
  opened: string[];
  /** By file what is known of its lines; none while another tab is open. */
  source: { files?: { title: string; lines: Line[] }[]; none?: Inline };
  /** By file the texts of its lines, which stay as they are while plans change. */
  texts: { files?: Inline[][] };
  shards: Content & { name: string; large: Document | null };
  targets: Machines;
  problems: Pane & { problems: number; notes: string; said: string };
  query: Query;
  tab: string;
  selected: string;
  selected_at: string;
  reading: string;
  /** The device that is picked, by its place in the mesh; below 0 for none. */
  device: number;
  comm_id: string;
  /** The number of the newest still below the explorer; see stills.py. */
  stilled: number;
  plan_code: string;
  /** The plan for JAX alone, or why there is no such code. Empty while nobody looks. */
  codes: { jax?: string; why?: string };
  /** The run of that code on simulated devices. Empty before it was asked for, and while nobody looks. */
  code_run: { document?: Document; busy?: boolean };
  /** By array which other programs shard it otherwise, in short and with their specs; the costs `of` the selected one. */
  sharing: Pane & { wishes?: Record<string, [text: string, title: string]>; of?: string };
  values: Pane;
  collectives: Pane;
  rosetta: Rosetta;
  rules: Pane & { fields?: RuleFields[] };
  costs: Pane;
  machine: Machine;
  device_groups: Pane & { device?: number; picture?: Picture };
  /** The steps as they would run; empty while nobody looks and while they are being walked. */
  /** The steps as they would run; `steps`: how many are drawn. */
  timeline: Pane & { steps?: number };
  /** The part of the longest step that is looked at, in shares of it. */
  span: [from: number, to: number];
  memory: Pane;
  difference: Pane;
  /** The selected value inside the function, where it is one, with its spec; and the constraints that the plan has. */
  constraints: {
    value: { name: string; label: string; spec: string } | null;
    rows: { name: string; line: string; text: string }[];
    /** Patterns of a rule for the selected array, the widest first; the last is its path. */
    patterns: string[];
  };
  /** What was asked of a value or a collective: its name, its line, the axis, and the answer when it is there. */
  why: Pane & { line: string; name: string; axis: string; busy: boolean; tried: number; trouble: string };
}

/** What anywidget gives a page: the traits, to read, write and follow. */
export interface Model {
  get<K extends keyof Traits>(key: K): Traits[K];
  set<K extends keyof Traits>(key: K, value: Traits[K]): void;
  save_changes(): void;
  on(event: string, listener: (message?: Message) => void): void;
  off(event: string, listener: (message?: Message) => void): void;
  send(message: { ask: "page" | "html" | "json" | "still" } | { edit: Edit; seq: number } | { seen: boolean }): void;
  widget_manager?: { get_model(id: string): Promise<{ comm_live?: boolean }>; context?: { model?: Notebook } };
}

/** What JupyterLab and Notebook let a widget see of its notebook. */
export interface Notebook {
  cells: { length: number; get(n: number): { outputs?: Outputs } };
}

/** What a cell has put out: a list whose entries can be replaced. */
export interface Outputs {
  length: number;
  get(n: number): { data: Record<string, unknown>; toJSON(): object };
  set(n: number, output: object): void;
}

/** What the kernel says besides its traits: the page's module, or a file to be downloaded. */
export interface Message {
  page?: string;
  file?: { name: string; text: string; why: string };
  /** The newest copy for the notebook, with its number. */
  still?: { number: number; data: Record<string, string> };
}

/** What `start.js` has before the page is there. */
export interface Starting extends Model {
  get(key: "_page"): string;
  get<K extends keyof Traits>(key: K): Traits[K];
  set(key: "_page", value: string): void;
  set<K extends keyof Traits>(key: K, value: Traits[K]): void;
}

/** The module that the kernel sends. */
export interface Page {
  default: { render(view: { model: Model; el: HTMLElement }): () => void };
  styles: string;
}

/** What every part of the page is given: the traits, and what a person may do. */
export interface Context {
  /** The page's element, once it is there. */
  root: HTMLElement;
  /** Which of the explorers of its name it is on the page, from 1. */
  number: number;
  /** Whether no kernel is behind the page any more; "gone" is emitted when that changes. */
  gone: boolean;
  /** Whether a change of an argument is made to its twins too; "twins" is emitted when that changes. */
  twins: boolean;
  /** When the oldest edit was made that waits for its answer; "asked" is emitted when one is made. */
  since: number;
  /** The edits that wait for their answers, in order; the same list as long as these are the same. */
  asked(): Sent[];
  /** The last edit of an operation, and of a name if there is one, that waits for its answer. */
  lastAsked(op: string, name?: string): Edit | undefined;
  /** The arguments or outputs as they are now, with what is done and not answered yet. */
  arrays(what: What): import("./arrays.js").Arrays;
  get<K extends keyof Traits>(key: K): Traits[K];
  /** Tells the kernel what a person looks at: a tab, a device, what is read. */
  set<K extends keyof Traits>(key: K, value: Traits[K]): void;
  /** Calls `listener` after a trait has changed, once for all that change together; and for "gone", "lit" and the
   * like, which are the page's own. Returns how to stop that. */
  on(key: string, listener: () => void): () => void;
  /** Draws now if the tab is shown, else when it next is. */
  when(tab: string, draw: () => void): void;
  /** Says that a tab is shown now. */
  shown(tab: string): void;
  /** Asks the kernel for a change. */
  edit(edit: Edit): void;
  select(name: string, look?: boolean): void;
  query(change: Query): void;
  /** Opens or closes the menu of one dimension at its slot. */
  openMenu(opening: Opening): void;
  /** Opens the menu of machines. */
  chooseTarget(): void;
  /** Shows a line of the source, `model.py:20`. */
  showLine(at: string): void;
  /** Asks why a value is sharded as it is (along one axis), or why a collective exists. */
  askWhy(name: string, axis?: string): void;
  /** Shows what is selected beside the views. */
  openDrawer(): void;
  /** Goes to a step of the chain that is shown, `model:3`. */
  goStep(step: string): void;
  /** The lines of a chain that is shown, and the one where it is now; "lit" is emitted when that changes. */
  lit: { lines: string[]; now: string };
  /** The mesh axis that is dragged. */
  air: string;
  /** Whether the menu of machines is open. */
  choosing: boolean;
  /** Whether the page is printed, all that can be unfolded open. */
  printing: boolean;
  /** The input that is looked for. */
  sought: string;
  /** What came of the last thing that was saved. */
  kept: string;
  /** The latest source, with its texts. */
  source: { files?: { title: string; lines: Line[] }[]; texts?: Inline[][] };
  /** Changes something of the page's own, and tells who follows it. */
  put<K extends "twins" | "lit" | "air" | "choosing" | "sought" | "printing" | "kept">(key: K, value: Context[K]): void;
  /** Asks whether a kernel is behind the page, now and whenever that may have changed. */
  watchKernel(): void;
  close(): void;
}
