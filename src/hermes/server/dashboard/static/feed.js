/** The feed of events: one stream per browser, read by the tab that holds the lock. */
import { PLACE, applyEvent, changed, conversation, loadSessions, loadUser, pageHeaders, sendWaiting, state } from "./data.js";
import { announce } from "./ui.js";
import { T } from "./text.js";

const SILENCE = 40000;
const ASLEEP = 300000;
const tab = Math.random().toString(36).slice(2);
const NAME = `hermes-feed${PLACE}`;
const channel = "BroadcastChannel" in window ? new BroadcastChannel(NAME) : null;
const wants = new Map();
let watched = [];
let begun = false;
let logLevel = "";
let leading = false;
let stop = null;
let delay = 500;
let wasLost = true;
let retryTimer = 0;
let asleep = false;
let sleepTimer = 0;

/** Watches these sessions in this tab. The first call opens the stream: what is watched is known then. */
export function watch(ids) {
  const isSame = begun && ids.join() === watched.join();
  begun = true;
  watched = ids;
  if (!isSame) tell();
}

/** Asks for records of the log from this level on, in this tab; empty: for none. */
export function followLog(level) {
  logLevel = level;
  tell();
}

function ownWants() {
  return Object.fromEntries(watched.map(id => [id, conversation(id).last]));
}

function tell() {
  wants.set(tab, { watch: ownWants(), logs: logLevel, asleep });
  restart();
  if (!leading && channel) channel.postMessage({ type: "want", tab, want: wants.get(tab) });
}

function unionOfWants() {
  const found = new Map();
  for (const want of wants.values())
    for (const [id, seq] of Object.entries(want.watch))
      found.set(id, Math.min(found.has(id) ? found.get(id) : Infinity, seq));
  return [...found].slice(0, 20).map(([id, seq]) => `${id}:${Number.isFinite(seq) ? seq : -1}`).join(",");
}

/** The lowest level that a tab wants; each shows what it asked for. */
function lowestLevel() {
  const found = T.levels.find(level => [...wants.values()].some(want => want.logs === level));
  return found ? `&logs=${found}` : "";
}

function setConnection(kind, retryAt = 0) {
  if (kind === "lost" && state.connection === "live") announce(T.announceLost);
  if (kind === "lost") wasLost = true;
  state.connection = kind;
  state.retryAt = retryAt;
  changed("app");
  if (leading && channel) channel.postMessage({ type: "connection", kind, retryAt });
  if (kind === "live") sendWaiting();
}

/** What changed in the list while nobody listened: little, where the stream was only begun anew. */
function catchUp() {
  loadSessions({ limit: wasLost ? 100 : 20 }).catch(() => {});
  wasLost = false;
}

function handOn(name, data) {
  if (name === "hello") catchUp();
  if (name === "message") for (const want of wants.values())
    if (data.session in want.watch) want.watch[data.session] = Math.max(want.watch[data.session], data.seq);
  applyEvent(name, data);
  if (channel) channel.postMessage({ type: "event", name, data });
}

function readFrames(buffer) {
  let end;
  while ((end = buffer.indexOf("\n\n")) >= 0) {
    const frame = buffer.slice(0, end);
    buffer = buffer.slice(end + 2);
    const name = /^event: (.*)$/m.exec(frame);
    const data = /^data: (.*)$/m.exec(frame);
    if (name && data) handOn(name[1], JSON.parse(data[1]));
  }
  return buffer;
}

/** Watches no longer the session that is not there, and the others as before; false: none was named. */
async function dropRefused(response) {
  const { error } = await response.json();
  const asked = [...wants.values()].filter(want => error.session in want.watch);
  for (const want of asked) delete want.watch[error.session];
  return asked.length > 0;
}

async function readStream(controller) {
  let timer = 0;
  const alive = () => { clearTimeout(timer); timer = setTimeout(() => controller.abort(), SILENCE); };
  alive();
  try {
    const response = await fetch(`api/events?watch=${encodeURIComponent(unionOfWants())}${lowestLevel()}`,
      { headers: { ...pageHeaders(), "X-Hermes-Tab": tab }, signal: controller.signal });
    if (response.status === 401) { state.user = null; changed("app"); return "signed out"; }
    if (response.status === 404 || response.status === 400) return await dropRefused(response) ? "refused" : "lost";
    if (!response.ok) return "lost";
    setConnection("live");
    delay = 500;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return "lost";
      alive();
      buffer = readFrames(buffer + value);
    }
  } catch {
    return "lost";
  } finally {
    clearTimeout(timer);
  }
}

async function run() {
  clearTimeout(retryTimer);
  if (stop) stop.abort();
  if (!state.user || [...wants.values()].every(want => want.asleep)) return;
  const controller = stop = new AbortController();
  const ended = await readStream(controller);
  if (stop !== controller || ended === "signed out") return; // another stream took over
  if (ended === "refused") { restart(); return; }
  const wait = delay * (0.75 + Math.random() / 2);
  delay = Math.min(15000, delay * 2);
  setConnection("lost", Date.now() + wait);
  retryTimer = setTimeout(run, wait);
}

let restartTimer = 0;
/** Begins the stream anew with what all tabs want now; only the tab that reads has one. */
function restart() {
  if (!leading || !begun) return;
  clearTimeout(restartTimer);
  restartTimer = setTimeout(() => { delay = 500; run(); }, 20);
}

/** Who is signed in has changed in this tab: every tab of the browser goes by it. */
export function tellUser() {
  restart();
  if (channel) channel.postMessage({ type: "user" });
}

async function followUser() {
  const before = state.user;
  await loadUser();
  restart();
}

function lead() {
  leading = true;
  wants.set(tab, { watch: ownWants(), logs: logLevel, asleep });
  if (channel) channel.postMessage({ type: "who" });
  restart();
  return new Promise(() => {}); // until the tab is closed
}

function hear({ data }) {
  if (data.type === "user") followUser().catch(() => {});
  if (data.type === "want" && leading) { begun = true; wants.set(data.tab, data.want); restart(); }
  if (data.type === "gone" && wants.delete(data.tab)) restart();
  if (data.type === "who") tell();
  if (leading) return;
  if (data.type === "event") applyEvent(data.name, data.data);
  if (data.type === "event" && data.name === "hello") catchUp();
  if (data.type === "connection") setConnection(data.kind, data.retryAt);
}

function wake() {
  clearTimeout(sleepTimer);
  if (document.hidden) {
    sleepTimer = setTimeout(() => {
      const waits = [...state.conversations.values()].some(conv => conv.live.approvals.length);
      if (!waits) { asleep = true; tell(); if (leading && stop) stop.abort(); }
    }, ASLEEP);
    return;
  }
  if (asleep) { asleep = false; wasLost = true; tell(); } else if (state.connection !== "live") tell(); // the tab that reads tries again at once
}

export function startFeed() {
  if (channel) channel.onmessage = hear;
  if (navigator.locks && channel) navigator.locks.request(NAME, lead);
  else lead();
  addEventListener("online", wake);
  addEventListener("pageshow", wake);
  document.addEventListener("visibilitychange", wake);
  addEventListener("pagehide", () => channel && channel.postMessage({ type: "gone", tab }));
}
