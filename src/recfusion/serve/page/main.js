// Where the page begins: it asks the service who it is, draws the state, and asks again for what a change makes stale.
import { count, render, tags } from "./dom.js";
import { ask, latest, takeToken } from "./api.js";
import { VIEWS, change, fragment, onChange, read, state, turn } from "./store.js";
import { condition, request } from "./settings.js";
import { controls } from "./controls.js";
import { shelf } from "./search.js";
import { list } from "./list.js";
import { compare } from "./compare.js";
import { ALTERNATIVES, complete } from "./complete.js";
import { STEPS, begin, steps } from "./steps.js";
import { model } from "./model.js";

const { a, button, div, footer, h1, header, label, main, nav, option, p, select, span, strong } = tags;

const TITLES = { list: "List", compare: "Side by side", complete: "Complete", steps: "How it comes about", model: "About the model" };
const MAKERS = { list, compare, complete, steps, model };
const WHY = 3;

// What the view needs, as questions: purpose -> [path, body].
function needs() {
  const { shelf, hidden, k, columns = state.model.columns } = state, plain = { shelf, hidden, k };
  const own = state.now.model ? { model: state.now.model } : {};
  const asked = {};
  if (state.view === "list") asked.list = ["recommend", request(state.now, columns, { ...plain, why: WHY })];
  if (state.view === "compare") {
    for (const side of ["kept", "now"]) asked[side] = ["recommend", request(state[side], columns, { ...plain, why: 0 })];
  }
  if (state.view === "complete" && shelf.length) {
    const where = condition(state.now, columns);
    asked.complete = ["complete", { history: shelf, n: state.n, alternatives: ALTERNATIVES, together: state.together, ...(where && { where }), ...(hidden.length && { deny: hidden }), ...own }];
  }
  if (state.view === "steps" && shelf.length) asked.steps = ["steps", { history: shelf, steps: STEPS, ...own }];
  if (state.similar) asked.similar = ["similar", { item: state.similar, k: 8, ...own }];
  const query = state.query.trim();
  if (query) asked.search = ["items?" + new URLSearchParams({ query, limit: 8 }), undefined];
  const nameless = shelf.filter((item) => !(item in state.names));
  if (nameless.length) asked.names = ["recommend", { history: nameless, allow: nameless, include_seen: true, k: nameless.length }];
  return asked;
}

const askers = {};
function refresh() {
  const asked = needs();
  for (const purpose of ["complete", "steps"]) if (!asked[purpose] && state.view === purpose) delete state.answers[purpose];
  for (const [purpose, [path, body]] of Object.entries(asked)) {
    const key = path + JSON.stringify(body ?? "");
    if (state.answers[purpose]?.key === key || state.answers[purpose]?.asked === key) continue;
    state.answers[purpose] = { ...state.answers[purpose], asked: key };
    askers[purpose] ??= latest(answer);
    askers[purpose](purpose, path, body, key);
  }
}

async function answer(purpose, path, body, key) {
  const begun = performance.now();
  let found;
  try {
    found = { data: await ask(path, body), error: "" };
  } catch (error) {
    found = { data: purpose === "similar" ? null : state.answers[purpose]?.data, error: error.message };
  }
  const asked = state.answers[purpose]?.asked;
  state.answers[purpose] = { ...found, key, asked, ms: performance.now() - begun, query: state.query.trim() };
  if (purpose === "names") named(body.history, found);
  draw();
  if (purpose === "steps" && !found.error) begin();
  say(purpose);
}

function named(ids, { data }) {
  for (const item of ids) state.names[item] = item;
  for (const { item, name } of data?.items ?? []) state.names[item] = name;
}

// Said once things have come to rest, so that a moving slider is not a flood of words.
let saying;
function say(purpose) {
  const { data, error } = state.answers[purpose], items = data?.items ?? [];
  const words = {
    list: () => `${count(items.length, "item")}; first ${items.slice(0, 3).map(({ name }) => name).join(", ")}.`,
    now: () => document.querySelector(".compare .lead")?.textContent,
    complete: () => `${count(data.alternatives.length, "way")} to complete the shelf.`,
    steps: () => `${data.steps.length - 1} steps.`,
    similar: () => `${count(items.length, "similar item")}.`,
    search: () => (state.open ? `${count(items.length, "title")} found.` : ""),
  }[purpose];
  if (!words) return;
  clearTimeout(saying);
  saying = setTimeout(() => (document.getElementById("said").textContent = error || words()), 400);
}

function app() {
  if (!state.model) return [main({ class: "waiting" }, p({ class: "lead", role: state.failed ? "alert" : undefined }, state.failed || "Loading …"))];
  const { models } = state.model, shown = models.find(({ name }) => name === state.now.model) ?? models[0];
  return [
    a({ class: "skip", href: "#results", onClick: (event) => { event.preventDefault(); document.getElementById("results").focus(); } }, "To the list"),
    header(null,
      p({ class: "kicker" }, "recfusion"),
      h1(null, "What next?"),
      p({ class: "who" }, strong(null, shown.name), ` knows ${count(shown.items ?? state.model.items, "item")}`, shown.users ? ` from what ${count(shown.users, "person", "people")} had.` : ".",
        models.length > 1 && label(null, " Model ", select({ value: state.now.model, onChange: (event) => turn({ model: event.target.value }, { history: true }) }, models.map(({ name }, n) => option({ key: name, value: n ? name : "" }, name))))),
    ),
    div({ class: "desk" },
      div({ class: "left" }, shelf(), controls()),
      main({ id: "results", tabIndex: -1 },
        nav({ "aria-label": "Views" }, VIEWS.map((view) => a({ key: view, href: fragment({ view }), "aria-current": state.view === view ? "page" : undefined }, TITLES[view])),
          button({ class: "quiet share", onClick: share }, state.told || "Copy link")),
        MAKERS[state.view]()),
    ),
    footer(null, p(null, "Your shelf stays in this page and its address. The service sees it to make the list and keeps no record of it.")),
  ];
}

async function share() {
  history.replaceState(null, "", fragment());
  try {
    await navigator.clipboard.writeText(location.href);
    change({ told: "Copied" });
  } catch {
    change({ told: "Copy it from the address bar" });
  }
  setTimeout(() => change({ told: "" }), 2500);
}

// Draws the state; items of the list that moved glide to their new places, and the focus stays where it was.
function draw() {
  const before = new Map([...document.querySelectorAll("[data-flip]")].map((row) => [row.dataset.flip, row.getBoundingClientRect().top]));
  const spot = document.activeElement?.dataset?.spot;
  render(app(), document.getElementById("app"));
  if (spot && document.activeElement?.dataset?.spot !== spot) document.querySelector(`[data-spot="${spot}"]`)?.focus();
  document.getElementById("found-" + state.active)?.scrollIntoView({ block: "nearest" });
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const row of document.querySelectorAll("[data-flip]")) {
    const from = before.get(row.dataset.flip), by = from - row.getBoundingClientRect().top;
    if (from === undefined && before.size) row.animate([{ opacity: 0 }, { opacity: 1 }], 250);
    else if (by) row.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], { duration: 250, easing: "ease-out" });
  }
}

async function start() {
  takeToken();
  read();
  draw();
  try {
    state.model = await ask("model");
  } catch (error) {
    state.failed = error.message;
    return draw();
  }
  state.sheet = matchMedia("(min-width: 60rem)").matches;
  onChange(() => {
    draw();
    refresh();
  });
  change({});
}

addEventListener("hashchange", () => {
  takeToken();
  read();
  if (state.model) change({});
});
addEventListener("keydown", (event) => {
  if (event.key !== "/" || /^(input|select|textarea)$/i.test(event.target.tagName)) return;
  event.preventDefault();
  document.getElementById("query")?.focus();
});
start();
