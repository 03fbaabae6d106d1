/** The dashboard: sign-in, the rail with pages and sessions, and the page that the address names. */
import { render } from "./vendor-preact.js";
import { useEffect, useLayoutEffect, useRef, useState } from "./vendor-preact-hooks.js";
import { changed, conversation, loadSessions, loadUser, may, request, signIn, signOut, state, toast, useTopic } from "./data.js";
import { startFeed, tellUser, watch } from "./feed.js";
import { Guard, html, Icon, State, timeAgo, useClock } from "./ui.js";
import { Talk } from "./talk.js";
import { T } from "./text.js";

/** Pages that are loaded when they are opened, and the scope that they need. */
const PAGES = { now: "admin", usage: "admin", schedule: "admin", knowledge: "admin", connections: "admin", settings: "admin", health: "admin" };
const FILTERS = {
  all: session => !session.archived,
  active: session => !session.archived && (session.busy || session.waiting),
  failed: session => !session.archived && (session.state === "failed" || session.state === "interrupted"),
  archived: session => session.archived,
};

function useHash() {
  const [hash, setHash] = useState(location.hash);
  useLayoutEffect(() => {
    const listener = () => setHash(location.hash);
    addEventListener("hashchange", listener);
    return () => removeEventListener("hashchange", listener);
  }, []);
  return hash;
}

function SignIn() {
  const [code, setCode] = useState("");
  const [failure, setFailure] = useState("");
  const submit = async event => {
    event.preventDefault();
    try { await signIn(code.trim()); begin(); tellUser(); } catch (error) { setFailure(error.message); }
  };
  return html`<main class="sign-in"><form class="card" onSubmit=${submit}><${Icon} name="mark" /><h1>Hermes</h1>
    <label>${T.signInCode}<input autocomplete="one-time-code" autocapitalize="characters" spellcheck=${false} value=${code} onInput=${event => setCode(event.target.value)} /></label>
    <p class="dim">${T.signInHelp}</p>${failure && html`<p class="bad" role="alert">${failure}</p>`}
    <button class="primary">${T.signIn}</button></form></main>`;
}

function dayOf(session) {
  if (session.pinned) return T.pinned;
  const start = new Date().setHours(0, 0, 0, 0) / 1000;
  return session.updated_at >= start ? T.today : session.updated_at >= start - 86400 ? T.yesterday : T.earlier;
}

function stateOf(session) {
  if (session.waiting) return ["warn", T.waiting];
  if (session.busy) return ["running", T.running];
  return session.state === "failed" || session.state === "interrupted" ? ["failed", session.state] : ["none", ""];
}

function removeLater(session) {
  const hide = isHidden => { state.removing[isHidden ? "add" : "delete"](session.id); changed("sessions"); };
  hide(true);
  const timer = setTimeout(() => request("DELETE", `api/sessions/${session.id}`).then(() => {
    state.sessions.delete(session.id);
    hide(false);
  }, error => { hide(false); toast(error.message); }), 8000);
  addEventListener("pagehide", () => clearTimeout(timer), { once: true });
  toast(T.deleted(session.title || T.untitled), { label: T.undo, run: () => { clearTimeout(timer); hide(false); } });
  if (`${location.hash}/`.startsWith(`#/c/${session.id}/`)) location.hash = "#/talk";
}

function SessionMenu({ session }) {
  const change = body => request("PATCH", `api/sessions/${session.id}`, body).then(found => {
    state.sessions.set(session.id, { ...session, ...body });
    changed("sessions");
  }, error => toast(error.message));
  const rename = event => { event.preventDefault(); const title = event.target.elements.title.value.trim(); if (title) change({ title }); };
  return html`<details class="session-menu"><summary aria-label=${`${T.edit}: ${session.title || T.untitled}`}>⋯</summary><div class="menu">
    <form onSubmit=${rename}><input name="title" aria-label=${T.rename} value=${session.title} /></form>
    <button class="quiet" onClick=${() => change({ pinned: !session.pinned })}>${session.pinned ? T.unpin : T.pin}</button>
    <button class="quiet" onClick=${() => change({ archived: !session.archived })}>${session.archived ? T.unarchive : T.archive}</button>
    <button class="quiet bad" onClick=${() => removeLater(session)}>${T.remove}</button></div></details>`;
}

function useSearch() {
  const [query, setQuery] = useState("");
  const [hits, setHits] = useState([]);
  useEffect(() => {
    if (query.trim().length < 2) { setHits([]); return undefined; }
    const timer = setTimeout(() => request("GET", `api/sessions/search?limit=30&q=${encodeURIComponent(query)}`)
      .then(found => setHits(found.data), () => setHits([])), 120);
    return () => clearTimeout(timer);
  }, [query]);
  return { query, setQuery, hits };
}

/** The words to search for, what they are searched in, and sessions that are not loaded yet. */
function Sessions({ current, onPalette }) {
  useTopic("sessions");
  useClock(60000);
  const { query, setQuery, hits } = useSearch();
  const [filter, setFilter] = useState("all");
  useEffect(() => { if (filter === "archived") loadSessions({ archived: true }).catch(error => toast(error.message)); }, [filter]);
  const words = query.trim().toLowerCase();
  const fits = FILTERS[filter] || (session => !session.archived && session.source === filter);
  const list = [...state.sessions.values()].filter(s => fits(s) && !state.removing.has(s.id) && (!words || (s.title || "").toLowerCase().includes(words)))
    .sort((a, b) => b.pinned - a.pinned || b.updated_at - a.updated_at);
  const sources = [...new Set([...state.sessions.values()].map(s => s.source))].sort();
  const more = () => loadSessions({ cursor: state.nextSessions }).catch(error => toast(error.message));
  return html`<div class="search-row"><input class="search" type="search" aria-label=${T.search} placeholder=${T.search} value=${query} onInput=${event => setQuery(event.target.value)} />
      <button class="quiet key" aria-label=${T.palette} title=${T.palette} onClick=${onPalette}><kbd>Ctrl K</kbd></button></div>
    <${PageLinks} /><div class="filter"><label><span class="hidden">${T.filterBy}</span><select value=${filter} onChange=${event => setFilter(event.target.value)}>
      ${Object.entries(T.filters).map(([key, text]) => html`<option value=${key}>${text}</option>`)}
      ${sources.length > 1 && sources.map(source => html`<option value=${source}>${T.fromSource(source)}</option>`)}</select></label></div>
    <nav class="sessions" aria-label=${T.conversations}>
    ${state.sessionsLoaded && !list.length && !hits.length && html`<p class="dim pad">${words || filter !== "all" ? T.foundNothing : T.noConversations}</p>`}
    <${Days} list=${list} current=${current} />
    ${state.nextSessions && !words && filter !== "archived" && html`<button class="quiet" onClick=${more}>${T.showOlder}</button>`}
    ${hits.length > 0 && html`<section><h2>${T.inMessages}</h2><ul>${hits.map(hit => html`<li key=${`${hit.session.id} ${hit.seq}`} class="session"><a href=${`#/c/${hit.session.id}/${hit.seq}`}>
      <span class="ellipsis">${hit.snippet}</span><time>${timeAgo(hit.created || hit.session.updated_at)}</time></a></li>`)}</ul></section>`}</nav>`;
}

function Days({ list, current }) {
  const days = new Map();
  for (const session of list) {
    const day = dayOf(session);
    if (!days.has(day)) days.set(day, []);
    days.get(day).push(session);
  }
  return [...days].map(([day, sessions]) => html`<section key=${day}><h2>${day}</h2><ul>${sessions.map(session => {
    const [kind, label] = stateOf(session);
    return html`<li key=${session.id} class="session"><a href=${`#/c/${session.id}`} aria-current=${session.id === current ? "page" : undefined}>
      ${kind === "none" ? html`<span class="state none"></span>` : html`<${State} kind=${kind} label=${label} />`}<span class="ellipsis">${session.title || T.untitled}</span><time>${timeAgo(session.updated_at)}</time></a>
      <${SessionMenu} session=${session} /></li>`;
  })}</ul></section>`);
}

const listPages = () => ["talk", ...Object.keys(PAGES).filter(name => may(PAGES[name]))];

function PageLinks() {
  const page = (/^#\/(\w+)/.exec(location.hash) || [])[1] || "talk";
  const waiting = [...state.sessions.values()].filter(s => s.waiting).length;
  return html`<nav class="pages" aria-label=${T.pageLinks}>${listPages().map(name => html`<a href=${`#/${name}`} aria-current=${(page === "c" ? "talk" : page) === name ? "page" : undefined}>
    <${Icon} name=${name} /><span>${T.pages[name]}</span>${name === "now" && waiting > 0 && html`<span class="badge">${waiting}</span>`}</a>`)}</nav>`;
}

function Rail({ current, open, onClose, onPalette }) {
  const theme = localStorage.getItem("hermes-theme") || "auto";
  const drawer = useRef(null);
  useEffect(() => {
    if (!open) return undefined;
    const before = document.activeElement;
    drawer.current.querySelector("button").focus();
    return () => before && before.focus();
  }, [open]);
  const onKey = event => { if (open && event.key === "Escape") onClose(); };
  return html`<div class=${`rail ${open ? "open" : ""}`} ref=${drawer} onKeyDown=${onKey} onClick=${event => event.target.closest("a") && onClose()}>
    <div class="brand"><${Icon} name="mark" /><b>Hermes</b></div>
    <button class="primary" onClick=${() => { location.hash = "#/talk"; onClose(); }}>${T.newConversation}</button>
    <${Sessions} current=${current} onPalette=${onPalette} />
    <div class="rail-foot"><label>${T.theme} <select onChange=${event => setTheme(event.target.value)} value=${theme}>
      <option value="auto">${T.auto}</option><option value="light">${T.light}</option><option value="dark">${T.dark}</option></select></label>
      <span class="space"></span><button class="quiet" onClick=${() => signOut().then(tellUser, e => toast(e.message))}>${T.signOut}</button></div></div>
    ${open && html`<button class="shade" aria-label=${T.close} onClick=${onClose}></button>`}`;
}

function setTheme(theme) {
  localStorage.setItem("hermes-theme", theme);
  document.documentElement.dataset.theme = theme;
}

function Connection() {
  useTopic("app");
  useClock(1000);
  const { connection, retryAt } = state;
  const text = connection === "live" ? T.live : connection === "lost" ? T.lost(Math.max(0, Math.ceil((retryAt - Date.now()) / 1000))) : T.connecting;
  return html`<span class=${`connection ${connection}`} role="status" aria-label=${T.connection} aria-live="off" data-state=${connection === "live" ? "live" : "lost"}>
    <i class=${`state ${connection === "live" ? "done" : "warn"}`}></i><span>${text}</span></span>`;
}

function Toast() {
  useTopic("toast");
  const shown = state.toast;
  if (!shown) return null;
  const run = () => { shown.action.run(); state.toast = null; changed("toast"); };
  return html`<div class="toast" role="status">${shown.text}${shown.action && html`<button onClick=${run}>${shown.action.label}</button>`}</div>`;
}

function OtherPage({ name }) {
  const [view, setView] = useState({});
  useEffect(() => {
    watch([]);
    import(`./page-${name}.js`).then(module => setView({ name, Page: module.Page }), error => toast(String(error)));
  }, [name]);
  return html`<main id="main" class="main page"><header class="top"><h1>${T.pages[name]}</h1></header>
    ${view.name === name && html`<${Guard} key=${name}><div class="content"><${view.Page} /></div><//>`}</main>`;
}

/** The palette: opened by Ctrl+K, loaded when it is first opened. */
function usePalette() {
  const [open, setOpen] = useState(false);
  const [module, setModule] = useState(null);
  useEffect(() => {
    const onKey = event => {
      if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k" && state.user) {
        event.preventDefault();
        setOpen(true);
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  useEffect(() => { if (open && !module) import("./palette.js").then(setModule, error => toast(String(error))); }, [open]);
  return { show: () => setOpen(true), close: () => setOpen(false), View: open && module ? module.Palette : null };
}

function App() {
  useTopic("app");
  const hash = useHash();
  const [open, setOpen] = useState(false);
  const palette = usePalette();
  if (state.user === undefined) return html`<main class="sign-in" aria-busy="true"><h1>Hermes</h1></main>`; // as the page itself
  if (!state.user) return html`<${SignIn} />`;
  const page = (/^#\/(\w+)/.exec(hash) || [])[1] || "talk";
  const [, id, seq] = /^#\/c\/([\w.:-]+)(?:\/(\d+))?/.exec(hash) || [null, "", undefined];
  return html`<a class="skip" href="#main" onClick=${event => { event.preventDefault(); const log = document.querySelector(".log, .content"); if (log) log.focus(); }}>${T.skip}</a>
    <button class="menu-button" aria-label=${T.menu} onClick=${() => setOpen(true)}><${Icon} name="menu" /></button>
    <${Connection} /><${Rail} current=${id} open=${open} onClose=${() => setOpen(false)} onPalette=${palette.show} />
    ${palette.View && html`<${palette.View} pages=${listPages()} conv=${id ? conversation(id) : null} onClose=${palette.close} />`}
    ${state.updated && html`<div class="banner" role="status">${T.updated} <button onClick=${() => location.reload()}>${T.reload}</button></div>`}
    ${page in PAGES && may(PAGES[page]) ? html`<${OtherPage} name=${page} />` : html`<${Guard} key="talk"><${Talk} id=${id} seq=${seq === undefined ? undefined : Number(seq)} /><//>`}
    <${Toast} /><div id="announcements" class="hidden" role="status" aria-live="polite"></div>`;
}

const PATIENCE = 1000;
/** The list comes with the feed's first event; where that is late, without it. */
const begin = () => setTimeout(() => { if (!state.sessionsLoaded) loadSessions().catch(error => toast(error.message)); }, PATIENCE);

async function start() {
  setTheme(localStorage.getItem("hermes-theme") || "auto");
  const code = /^#code=([\w-]+)$/.exec(location.hash);
  if (code) history.replaceState(null, "", location.pathname + location.search);
  render(html`<${App} />`, document.getElementById("app"));
  try {
    if (code) await signIn(code[1]).then(tellUser, loadUser); else await loadUser();
  } catch (error) {
    state.user = null;
    changed("app");
    toast(error.message);
  }
  startFeed();
  if (state.user) begin();
}

start();
