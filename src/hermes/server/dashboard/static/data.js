/** Requests to the server, and the state of sessions and conversations that its events change. */
import { useLayoutEffect, useState } from "./vendor-preact-hooks.js";
import { announce } from "./ui.js";
import { T } from "./text.js";

/** What the browser keeps for this server: another path is another server. */
export const PLACE = location.pathname === "/" ? "" : location.pathname;
const TOKEN = `hermes-page${PLACE}`;
const RETRY = 1000;
export const state = { user: undefined, connection: "connecting", retryAt: 0, updated: false, assets: "",
  sessions: new Map(), removing: new Set(), sessionsLoaded: false, nextSessions: null, conversations: new Map(), toast: null };
const listeners = new Map();

/** Re-renders when the topic changes. */
export function useTopic(topic) {
  const [, render] = useState(0);
  useNews(topic, () => render(n => n + 1));
}

/** Calls the function when the topic changes; from the moment on at which the part is drawn, because an
 * answer may be there before the next frame. */
export function useNews(topic, listener) {
  useLayoutEffect(() => {
    if (!listeners.has(topic)) listeners.set(topic, new Set());
    listeners.get(topic).add(listener);
    return () => listeners.get(topic).delete(listener);
  }, [topic]);
}

const dirty = new Set();
let drawing = false;
/** Tells who shows a topic, once per frame. */
export function changed(topic) {
  dirty.add(topic);
  if (drawing) return;
  drawing = true;
  const draw = () => {
    if (!drawing) return;
    drawing = false;
    const topics = [...dirty];
    dirty.clear();
    for (const name of topics) for (const listener of listeners.get(name) || []) listener();
  };
  requestAnimationFrame(draw);
  setTimeout(draw, 200); // a hidden page draws no frames
}

export class Failure extends Error {
  constructor(status, message, error = {}) {
    super(message);
    Object.assign(this, { status, code: error.code, param: error.param, problems: error.problems });
  }
}

export function pageHeaders() {
  return { "X-Hermes-Page": localStorage.getItem(TOKEN) || "" };
}

/** @returns {Promise<any>} the answer's JSON; throws a Failure with the server's sentence */
export async function request(method, path, body, extra = {}) {
  const headers = { ...pageHeaders(), ...extra.headers };
  if (body !== undefined && !extra.raw) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: extra.raw ? body : body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Failure(0, T.unreachable, { code: "offline" });
  }
  if (response.ok) return extra.blob ? response.blob() : response.json();
  let error = {};
  try { error = (await response.json()).error; } catch { /* not ours */ }
  if (response.status === 401 && state.user) { state.user = null; changed("app"); }
  throw new Failure(response.status, error.message || T.answered(response.status), error);
}

export const get = path => request("GET", path);
export const post = (path, body = {}) => request("POST", path, body);

let shownTo;
function setUser(found) {
  const isOther = shownTo !== undefined && found && shownTo !== found.principal;
  state.user = found;
  if (found) shownTo = found.principal;
  if (isOther) location.reload(); // what was loaded is not for them
  changed("app");
}

export async function loadUser() {
  const isKnown = Boolean(localStorage.getItem(TOKEN)); // without its token no session is this page's
  const found = isKnown ? await get("api/web/session") : { principal: null };
  setUser(found.principal === null ? null : found);
}

export async function signIn(code) {
  const found = await post("api/web/login", code.length > 12 ? { key: code } : { code });
  localStorage.setItem(TOKEN, found.page_token);
  setUser(found);
}

export async function signOut() {
  await post("api/web/logout");
  localStorage.removeItem(TOKEN);
  setUser(null);
}

export async function download(path) {
  const { href } = await post("api/web/ticket", { path: `/${path}` });
  const link = document.createElement("a");
  link.href = href;
  link.download = "";
  link.click();
}

export const may = scope => Boolean(state.user && state.user.scopes.includes(scope));

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, b => b.toString(16).padStart(2, "0")).join("");
}

/** What is known of one conversation: recorded messages by number, and what is not recorded. */
export function conversation(id) {
  let found = state.conversations.get(id);
  if (!found) {
    found = { id, messages: new Map(), results: new Map(), last: -1, total: 0, loading: new Set(),
      live: emptyLive(), settled: 0, ended: null, notice: "", unsent: [], error: null, loaded: false };
    state.conversations.set(id, found);
  }
  return found;
}

const emptyLive = () => ({ busy: false, step: 0, turns: [], partial: { text: "", reasoning: "", tools: [] },
  approvals: [], questions: [], todo: [], usage: {} });

export function addMessage(conv, message) {
  conv.messages.set(message.seq, message);
  conv.last = Math.max(conv.last, message.seq);
  conv.total = Math.max(conv.total, message.seq + 1);
  for (const part of message.content)
    if (part.type === "tool_result") conv.results.set(part.call_id, { ...part, at: message.created_at });
}

export const GROUP = 30;
/** Loads a group of messages by its number. */
export async function loadGroup(conv, group) {
  if (conv.loading.has(group)) return;
  conv.loading.add(group);
  try {
    const page = await get(`api/sessions/${conv.id}/messages?after=${group * GROUP - 1}&limit=${GROUP}`);
    page.data.forEach(message => addMessage(conv, message));
    changed(conv.id);
  } finally {
    conv.loading.delete(group);
  }
}

export async function openConversation(id) {
  const conv = conversation(id);
  if (conv.loaded) return conv;
  const asked = ++moment;
  try {
    const meta = await get(`api/sessions/${id}`);
    takeSession(meta, asked);
    conv.effort = meta.effort;
    const total = Math.max(conv.total, meta.message_count);
    const first = Math.max(0, Math.floor((total - 1) / GROUP) - 1) * GROUP;
    const page = await get(`api/sessions/${id}/messages?after=${first - 1}&limit=${2 * GROUP}`);
    conv.total = Math.max(conv.total, total); // from now on groups load what they lack
    page.data.forEach(message => addMessage(conv, message));
    conv.loaded = true;
    conv.error = null;
  } catch (error) {
    conv.error = error;
  }
  changed(id);
  return conv;
}

/** When events last told of a session, by its id, on a clock that every request moves on. */
const told = new Map();
let moment = 0;
/** Takes a session out of an answer, unless an event has told of it since the question. */
function takeSession(session, asked) {
  if (!(told.get(session.id) > asked)) state.sessions.set(session.id, session);
}

/** Loads sessions: the first ones, those after `cursor`, or the archived ones. */
export async function loadSessions({ cursor = "", archived = false, limit = 100 } = {}) {
  const asked = ++moment;
  const page = await get(`api/sessions?limit=${limit}${cursor ? `&cursor=${cursor}` : ""}${archived ? "&archived=true" : ""}`);
  for (const session of page.data) takeSession(session, asked);
  if (!archived && (cursor || !state.sessionsLoaded)) state.nextSessions = page.next_cursor;
  state.sessionsLoaded = true;
  changed("sessions");
}

const removeById = (list, id) => list.filter(item => item.id !== id);

/** How each event changes a conversation. */
const CHANGES = {
  message(conv, data) {
    addMessage(conv, data);
    const partial = conv.live.partial;
    if (data.role === "assistant") { partial.text = ""; partial.reasoning = ""; }
    if (data.role === "user") conv.ended = null;
    const ids = new Set(data.content.map(part => part.call_id).filter(Boolean));
    partial.tools = partial.tools.filter(tool => !ids.has(tool.id));
  },
  snapshot(conv, data) {
    const wasBusy = conv.live.busy;
    conv.settled += 1;
    conv.live = { ...emptyLive(), ...data };
    if (data.busy) conv.ended = null;
    else if (data.ended && data.ended.error) conv.ended = data.ended; // it failed before the page watched
    if (data.busy || wasBusy) conv.notice = "";
  },
  delta(conv, data) { conv.live.busy = true; conv.live.partial.text += data.text; },
  reasoning(conv, data) { conv.live.busy = true; conv.live.partial.reasoning += data.text; },
  step(conv, data) { conv.live.busy = true; conv.live.step = data.step; conv.notice = ""; },
  tool(conv, data) { conv.live.partial.tools.push({ ...data, progress: "", began: Date.now() / 1000 }); },
  progress(conv, data) {
    const tool = conv.live.partial.tools.find(t => t.id === data.id);
    if (tool) tool.progress = (tool.progress + data.text).slice(-4000);
  },
  "tool.done"(conv, data) {
    const tool = conv.live.partial.tools.find(t => t.id === data.id);
    if (tool) Object.assign(tool, data);
    conv.times = { ...conv.times, [data.id]: data.seconds };
    if (data.diff) conv.diffs = { ...conv.diffs, [data.id]: data.diff };
  },
  approval(conv, data) { conv.live.approvals = [...removeById(conv.live.approvals, data.id), data]; announce(T.announceApproval); },
  question(conv, data) { conv.live.questions = [...removeById(conv.live.questions, data.id), data]; announce(data.text); },
  resolved(conv, data) {
    conv.live.approvals = removeById(conv.live.approvals, data.id);
    conv.live.questions = removeById(conv.live.questions, data.id);
  },
  turns(conv, data) { conv.live.turns = data.turns; conv.live.busy = data.turns.length > 0 || conv.live.step > 0; },
  todo(conv, data) { conv.live.todo = data.todo; },
  usage(conv, data) { conv.live.usage = data; },
  notice(conv, data) { conv.notice = data.text; },
  recovering(conv, data) { conv.notice = T.recovering(data.kind, data.action, Math.round(data.wait_seconds || 0)); },
  end(conv, data) {
    Object.assign(conv.live, { busy: false, step: 0, partial: emptyLive().partial, approvals: [], questions: [] });
    conv.ended = data;
    conv.settled += 1;
    if (data.status === "completed") { conv.notice = ""; announce(T.announceDone); }
  },
  moved(conv, data) {
    if (location.hash.startsWith(`#/c/${conv.id}`)) location.replace(`#/c/${data.to}`);
  },
};

/** Functions that take each record of the log as it is written. */
export const logReaders = new Set();

/** Events that say that a page has something else to show. */
const NEWS = new Set(["platform", "budget", "config", "job"]);

/** Applies one event of the feed. */
export function applyEvent(name, data) {
  if (name === "hello") {
    state.updated = Boolean(state.assets) && state.assets !== data.assets;
    state.assets = state.assets || data.assets;
    changed("app");
    changed("hello");
  } else if (name === "session") {
    told.set(data.session.id, ++moment);
    state.sessions.set(data.session.id, data.session);
    const conv = state.conversations.get(data.session.id);
    if (conv) { conv.total = Math.max(conv.total, data.session.message_count); changed(conv.id); }
    changed("sessions");
  } else if (name === "session.deleted") {
    told.set(data.session, ++moment);
    state.removing.delete(data.session);
    state.sessions.delete(data.session);
    changed("sessions");
  } else if (name === "log") {
    for (const take of logReaders) take(data);
  } else if (NEWS.has(name)) {
    changed(name);
  } else if (CHANGES[name]) {
    const conv = conversation(data.session);
    CHANGES[name](conv, data);
    changed(conv.id);
  }
}

/** Sends a message once: without a connection it waits, and a lost answer is asked for again. */
export async function send(conv, item) {
  if (!conv.unsent.includes(item)) { item.since = conv.last; conv.unsent.push(item); }
  changed(conv.id);
  const before = conv.settled;
  try {
    await post(`api/sessions/${conv.id}/turns`, { client_id: item.id, content: item.text, uploads: item.uploads, busy: item.busy });
    conv.unsent = conv.unsent.filter(other => other !== item);
    // Otherwise the feed was faster, or the turn of a repeated send may be over.
    if (item.busy !== "steer" && !item.again && conv.settled === before) conv.live.busy = true;
  } catch (error) {
    if (error.status === 0 || error.status === 503) {
      item.waits = item.again = true;
      if (state.connection === "live") setTimeout(sendWaiting, RETRY); // otherwise the feed tells when to
    } else {
      conv.unsent = conv.unsent.filter(other => other !== item);
      changed(conv.id);
      throw error;
    }
  }
  changed(conv.id);
}

const textOf = message => message.content.filter(part => part.type === "text").map(part => part.text).join("\n\n");

/** The messages that are on their way and not in the conversation yet, though only their answer may have been lost. */
export function listUnsent(conv) {
  const taken = new Set();
  return conv.unsent.filter(item => {
    for (let seq = item.since + 1; seq <= conv.last; seq++) {
      const message = conv.messages.get(seq);
      if (message && message.role === "user" && !taken.has(seq) && textOf(message).startsWith(item.text)) { taken.add(seq); return false; }
    }
    return !conv.live.turns.some(turn => turn.state !== "running" && turn.text === item.text);
  });
}

export function sendWaiting() {
  for (const conv of state.conversations.values())
    for (const item of conv.unsent.filter(i => i.waits)) { item.waits = false; send(conv, item).catch(error => toast(error.message)); }
}

let toastTimer = 0;
export function toast(text, action) {
  clearTimeout(toastTimer);
  state.toast = { text, action };
  toastTimer = setTimeout(() => { state.toast = null; changed("toast"); }, 8000);
  changed("toast");
}
