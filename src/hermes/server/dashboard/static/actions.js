/** What can be done with a conversation: the menu, the palette and slash commands share it. */
import { changed, download, post, request, state, toast } from "./data.js";
import { T } from "./text.js";

/** @typedef {{name: string, label: string, hint: string, argument?: string, choices?: string[], when?: string,
 *   run: (conv: any, words: string) => any}} Action */

/** Goes on where the server says that the conversation is now. */
async function follow(conv, work, done) {
  const found = await work;
  if (found.session !== conv.id) location.hash = `#/c/${found.session}`;
  if (done) toast(found.text || done);
}

async function change(conv, body, done) {
  const found = await request("PATCH", `api/sessions/${conv.id}`, body);
  state.sessions.set(conv.id, { ...state.sessions.get(conv.id), ...found });
  if (body.effort) conv.effort = body.effort;
  changed("sessions");
  changed(conv.id);
  if (done) toast(done);
}

/** @param {any} conv @param {number} messages how many of the first messages the branch has */
export async function branch(conv, messages) {
  const made = await post(`api/sessions/${conv.id}/fork`, { messages });
  state.sessions.set(made.id, made);
  location.hash = `#/c/${made.id}`;
}

const of = (conv, path) => `api/sessions/${conv.id}/${path}`;
const FORMATS = Object.keys(T.formats);
const EFFORTS = T.efforts;

/** @type {Action[]} */
export const ACTIONS = [
  { name: "new", ...T.actions.new, run: () => { location.hash = "#/talk"; } },
  { name: "retry", ...T.actions.retry, when: "idle", run: conv => follow(conv, post(of(conv, "retry"))) },
  { name: "undo", ...T.actions.undo, when: "idle", run: conv => follow(conv, post(of(conv, "undo")), T.undone) },
  { name: "compress", ...T.actions.compress, when: "idle", run: conv => follow(conv, post(of(conv, "compress")), T.compressed) },
  { name: "stop", ...T.actions.stop, when: "busy", run: conv => post(of(conv, "stop")) },
  { name: "branch", ...T.actions.branch, when: "open", run: conv => branch(conv, conv.total) },
  { name: "export", ...T.actions.export, when: "open", choices: FORMATS, run: (conv, words) => {
    const format = words || "markdown";
    if (!FORMATS.includes(format)) throw new Error(T.unknownFormat(FORMATS.join(", ")));
    return download(of(conv, `export?format=${format}`));
  } },
  { name: "title", ...T.actions.title, when: "open", argument: "TITLE", run: (conv, words) => {
    if (!words) throw new Error(T.needsTitle);
    return change(conv, { title: words });
  } },
  { name: "model", ...T.actions.model, when: "open", argument: "NAME", run: (conv, words) => {
    if (!words) throw new Error(T.needsModel);
    return change(conv, { model: words }, T.modelIs(words));
  } },
  { name: "reasoning", ...T.actions.effort, when: "open", choices: EFFORTS, run: (conv, words) => {
    if (!EFFORTS.includes(words)) throw new Error(T.needsEffort(EFFORTS.join(", ")));
    return change(conv, { effort: words }, T.effortIs(words));
  } },
  { name: "find", ...T.actions.find, when: "open", argument: "WORDS", run: (conv, words) => { conv.find = { words }; changed(conv.id); } },
];

/** The actions that make sense now. */
export function listActions(conv) {
  const fits = { idle: conv && conv.total > 0 && !conv.live.busy, busy: conv && conv.live.busy, open: Boolean(conv) };
  return ACTIONS.filter(action => !action.when || fits[action.when]);
}

/** Runs an action and shows what went wrong. */
export async function runAction(action, conv, words = "") {
  try {
    await action.run(conv, words);
    return true;
  } catch (error) {
    toast(error.message);
    return false;
  }
}

/** Runs what a message that begins with a slash asks for; false: it is no command. */
export async function runSlash(text, conv) {
  const [, name, words] = /^\/([a-z-]+)\s*([\s\S]*)$/.exec(text);
  const action = ACTIONS.find(other => other.name === name);
  if (!action || (action.when && !conv)) {
    toast(action ? T.needsConversation(name) : T.unknownCommand(name));
    return false;
  }
  return runAction(action, conv, words.trim());
}
