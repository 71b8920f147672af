// The page: it loads /model, draws the state, and requests whatever a change makes out of date.
import { count, render, still, tags } from "./dom.js";
import { ask, latest, takeToken } from "./api.js";
import { VIEWS, change, changeCurrent, fragment, onChange, readLink, rememberNames, state } from "./store.js";
import { condition, request, setControls } from "./settings.js";
import { controls } from "./controls.js";
import { historyPanel } from "./search.js";
import { list } from "./list.js";
import { compare, modelChoice } from "./compare.js";
import { ALTERNATIVES, complete } from "./complete.js";
import { begin, nSteps, steps } from "./steps.js";
import { model } from "./model.js";

const { a, aside, button, div, footer, h1, header, main, nav, p, strong } = tags;
const VIEW_FUNCTIONS = { list, compare, complete, steps, model };

// The requests that the view needs: purpose -> [path, body].
function needs() {
	const { history, hidden, view, k, model: service } = state, asked = {}, model = { model: state.current.model || service.models[0].name };
	const rest = { history, deny: hidden, k }, where = condition(state.current, service.columns);
	if (view === "list") asked.list = ["recommend", request(state.current, service, { ...rest, why: 3 })];
	if (view === "compare") for (const side of ["saved", "current"]) asked[side] = ["recommend", request(state[side], service, rest)];
	if (view === "complete" && history.length) {
		asked.complete = ["complete", { ...model, history, deny: hidden, n: state.n, alternatives: ALTERNATIVES, together: state.together, ...(where && { where }) }];
	}
	if (view === "steps" && history.length) asked.steps = ["steps", { ...model, history, steps: nSteps(), seed: state.seed }];
	if (state.similar) asked.similar = ["similar", { ...model, item: state.similar, k: 8 }];
	if (state.query.trim()) asked.search = ["items?" + new URLSearchParams({ query: state.query.trim().slice(0, 200), limit: 8 })];
	const nameless = [...history, state.similar].filter((item) => item && !(item in state.names));
	if (nameless.length) asked.names = ["recommend", { history: nameless, allow: nameless, include_seen: true, k: nameless.length }];
	return asked;
}

const senders = {};
function refresh() {
	for (const [purpose, [path, body]] of Object.entries(needs())) {
		const asked = path + JSON.stringify(body), last = state.answers[purpose];
		if (last?.asked === asked) continue;
		state.answers[purpose] = { ...last, asked };
		senders[purpose] ??= latest(answer);
		senders[purpose](purpose, path, body, asked);
	}
}

async function answer(purpose, path, body, key) {
	const begun = performance.now(), query = state.query.trim(), found = { query };
	try {
		found.data = await ask(path, body);
	} catch (error) {
		found.error = error.message;
		if (purpose === "list") found.data = state.answers.list.data; // the last good list stays visible
	}
	state.answers[purpose] = { ...found, key, asked: state.answers[purpose].asked, ms: performance.now() - begun };
	if (purpose === "names") {
		for (const item of body.history) state.names[item] = item;
		rememberNames(found.data?.items ?? []);
	}
	if (purpose === "steps" && found.data) begin();
	else draw();
	announce(purpose, found);
}

// Tells screen readers about an answer, once answers stop coming: a moving slider is announced once.
let announcing;
function announce(purpose, { data, error }) {
	const items = data?.items ?? [];
	const words = error || {
		list: () => `${count(items.length, "item")}; first ${items.slice(0, 3).map(({ name }) => name).join(", ")}.`,
		current: () => document.querySelector(".compare .lead")?.textContent,
		complete: () => `${data.alternatives.length} sets that complete the history.`,
		similar: () => `${items.length} similar items.`,
		search: () => state.open && `${count(items.length, "title")} found.`,
	}[purpose]?.();
	if (!words) return;
	clearTimeout(announcing);
	announcing = setTimeout(() => (document.getElementById("status").textContent = words), 400);
}

function app() {
	if (!state.model) return [main({ class: "waiting" }, p({ class: "lead", role: state.failed && "alert" }, state.failed || "Loading …"))];
	const shown = state.model.models.find(({ name }) => name === state.current.model) ?? state.model.models[0], { items, users } = shown.trained_on;
	return [
		button({ class: "skip", onclick: () => document.querySelector("main").focus() }, "To the list"),
		header(null,
			div({ class: "head kicker" }, p(null, "recfusion"), button({ class: "quiet", onclick: copyLink }, state.copied || "Copy link to this view")),
			h1(null, "Recommendations"),
			div({ class: "who" }, p(null, strong(null, shown.name), ` knows ${count(items, "item")}`, users ? ` from ${count(users, "user")}.` : "."), modelChoice(state.current, (model) => changeCurrent({ model }, true)))),
		div({ class: "layout" },
			aside({ class: "left", "aria-label": "History and controls" }, historyPanel(), controls()),
			main({ tabindex: -1, "aria-busy": String(Object.values(state.answers).some(({ key, asked }) => key !== asked)) },
				nav({ "aria-label": "Views" },
					Object.entries(VIEWS).map(([view, title]) => a({ key: view, href: fragment({ view }), "aria-current": state.view === view && "page" }, title))),
				VIEW_FUNCTIONS[state.view]())),
		footer(null, p(null, "Your history stays in this page and its address. The service computes lists from it and stores nothing.")),
	];
}

async function copyLink() {
	history.replaceState(null, "", fragment());
	try {
		await navigator.clipboard.writeText(location.href);
		change({ copied: "Copied" });
	} catch {
		change({ copied: "Copy it from the address bar" }); // without https there may be no clipboard
	}
	setTimeout(() => change({ copied: "" }), 2500);
}

// Draws the state: items glide to their new places, and the focus stays where it was.
function draw() {
	const rows = () => [...document.querySelectorAll("[data-flip]")].map((row) => [row, row.dataset.flip, row.getBoundingClientRect().top]);
	const before = new Map(rows().map(([, item, top]) => [item, top])), spot = document.activeElement?.dataset.spot;
	render(app(), document.getElementById("app"));
	if (spot && document.activeElement.dataset.spot !== spot) document.querySelector(`[data-spot="${spot}"]`)?.focus();
	document.getElementById(`found-${state.active}`)?.scrollIntoView({ block: "nearest" });
	if (still.matches || !before.size) return;
	for (const [row, item, top] of rows()) {
		const by = before.get(item) - top;
		if (by !== 0) row.animate([Number.isNaN(by) ? { opacity: 0 } : { transform: `translateY(${by}px)` }, {}], { duration: 250, easing: "ease-out" });
	}
}

async function start() {
	if (takeToken() || !state.model) {
		draw();
		try {
			state.model = await ask("model");
		} catch (error) {
			state.failed = error.message;
			return draw();
		}
		setControls(state.model.controls);
		state.sheet = matchMedia("(min-width: 60rem)").matches;
		onChange(() => {
			refresh();
			draw();
		});
	}
	readLink();
	change({});
}

addEventListener("hashchange", start);
addEventListener("keydown", (event) => {
	if (event.key !== "/" || /^(input|select)$/i.test(event.target.tagName)) return;
	event.preventDefault();
	document.getElementById("query")?.focus();
});
start();
