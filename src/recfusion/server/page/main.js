// The page: loads /model, draws the state, and requests what a change makes out of date.
import { count, render, still, tags } from "./dom.js";
import { requestCode } from "./code.js";
import { ask, latest, takeToken } from "./api.js";
import { VIEWS, add, change, changeCurrent, fragment, isCurrent, onChange, readLink, rememberNames, save, state } from "./store.js";
import { condition, isReranked, noReranking, request, setControls } from "./settings.js";
import { controls } from "./controls.js";
import { historyPanel, matches } from "./search.js";
import { close, list } from "./list.js";
import { compare, drawLines, modelChoice } from "./compare.js";
import { ALTERNATIVES, complete } from "./complete.js";
import { begin, nSteps, steps } from "./steps.js";
import { model } from "./model.js";
import { view as plainView } from "./parts.js";

const { a, aside, button, div, footer, h1, header, main, nav, p, strong } = tags;
const VIEW_FUNCTIONS = { list, map, compare, complete, steps, model };

// The map is loaded when it is opened.
let atlas;
function map() {
	if (atlas) return atlas.map();
	import("./map.js").then((found) => ((atlas = found), draw()), () => change({ failed: "The map cannot be loaded: reload the page." }));
	return plainView("map", "Taste map", state.failed || "Loading the map …");
}

const WHY = 40; // reasons of each item: all of a usual history
// The requests that the view needs: purpose -> [path, body].
function needs() {
	const { history, hidden, view, k, model: service } = state, asked = {}, model = { model: state.current.model || service.models[0].name };
	const rest = { history, deny: hidden, k }, where = condition(state.current, service.columns);
	const known = state.answers.list?.data?.unknown ?? [];
	const why = Math.min(WHY, Math.max(1, history.filter((item) => !known.includes(item)).length));
	if (view === "list" || view === "map") asked.list = ["recommend", request(state.current, service, { ...rest, why })];
	if (view === "list" && history.length && isReranked(state.current)) asked.plain = ["recommend", request({ ...state.current, ...noReranking() }, service, rest)];
	if (view === "map") asked.map = ["map?" + new URLSearchParams(model)];
	if (view === "list" && state.whynot) asked.whynot = ["explain", request(state.current, service, { ...rest, item: state.whynot })];
	if (view === "list" && state.asking && state.seek.trim()) asked.seek = ["items?" + new URLSearchParams({ query: state.seek.trim().slice(0, 200), limit: 8 })];
	if (view === "compare") for (const side of ["saved", "current"]) asked[side] = ["recommend", request(state[side], service, rest)];
	if (view === "complete" && history.length) {
		asked.complete = ["complete", { ...model, history, deny: hidden, n: state.n, alternatives: ALTERNATIVES, together: state.together, ...(where && { where }) }];
	}
	if ((view === "steps" || (view === "map" && state.thinning)) && history.length) asked.steps = ["steps", { ...model, history, steps: nSteps(), seed: state.seed }];
	if (state.similar) asked.similar = ["similar", { ...model, item: state.similar, k: 8 }];
	if (!history.length) Object.assign(asked, { examples: ["examples"], surprise: [`examples?n=1&seed=${state.luck}`] });
	if (state.query.trim()) asked.search = ["items?" + new URLSearchParams({ query: state.query.trim().slice(0, 200), limit: 8 })];
	const nameless = [...history, state.similar].filter((item) => item && !(item in state.names));
	if (nameless.length) asked.names = ["recommend", { history: [], allow: nameless, k: nameless.length }];
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
	const { data, sent } = state.answers[purpose], found = { data, sent }; // an error keeps the last good answer
	try {
		Object.assign(found, { data: await ask(path, body), sent: body });
		patience = FIRST_PAUSE;
	} catch (error) {
		Object.assign(found, { error: words(error), passing: error.passing });
	}
	state.answers[purpose] = { ...found, key, asked: state.answers[purpose].asked };
	if (purpose === "names" && !found.error) {
		for (const item of body.allow) state.names[item] = item;
		rememberNames(found.data.items);
	}
	if (purpose === "search") {
		state.active = -1; // the option that it meant may be gone
		if (state.entered && isCurrent("search") && !found.error) state.entered = false, matches().slice(0, 1).forEach((one) => add(one));
	}
	if (purpose === "steps" && !found.error) begin();
	else draw();
	announce(purpose, found);
}

// Requests that failed in an outage are repeated until they succeed, after longer and longer pauses.
const FIRST_PAUSE = 1000, LONGEST_PAUSE = 10_000;
let patience = FIRST_PAUSE, retrying;
function words({ message, passing }) {
	if (!passing) return message;
	if (!retrying) {
		retrying = setTimeout(retry, patience);
		patience = Math.min(2 * patience, LONGEST_PAUSE);
	}
	return `${message} Trying again …`;
}
function retry() {
	clearTimeout(retrying);
	retrying = undefined;
	if (!state.model) return start();
	for (const one of Object.values(state.answers)) if (one.passing) one.asked = one.key = undefined;
	refresh();
	draw();
}

// Tells screen readers about the last answer: a moving slider is announced once.
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
				VIEW_FUNCTIONS[state.view](), state.view === "list" && requestCode())),
		footer(null, p(null, "Your history stays in this page and its address. The service does not store it. ", a({ href: "docs" }, "Routes of the service"))),
	];
}

async function copyLink() {
	save("replaceState");
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
	const before = new Map(rows().map(([, item, top]) => [item, top])), focused = document.activeElement, spot = focused?.dataset.spot;
	render(app(), document.getElementById("app"));
	drawLines();
	if (state.view === "map") atlas?.paint();
	if (!focused?.isConnected || (spot && document.activeElement.dataset.spot !== spot)) refocus(spot);
	document.getElementById(`found-${state.active}`)?.scrollIntoView({ block: "nearest" });
	if (still.matches || !before.size) return;
	for (const [row, item, top] of rows()) {
		const by = before.get(item) - top;
		if (by !== 0) row.animate([Number.isNaN(by) ? { opacity: 0 } : { transform: `translateY(${by}px)` }, {}], { duration: 250, easing: "ease-out" });
	}
}

// Focuses the button at a spot ("hide-3"), the last of its kind, or the search field; without a spot, the view.
function refocus(spot) {
	const find = (match) => [...document.querySelectorAll(match)].at(-1), kind = spot?.split("-")[0];
	if (kind) (find(`[data-spot="${spot}"]`) ?? find(`[data-spot^="${kind}-"]`) ?? document.getElementById("query"))?.focus();
	else document.querySelector("main").focus({ preventScroll: true });
}

async function start() {
	if (takeToken() || !state.model) {
		draw();
		try {
			state.model = await ask("model");
			state.failed = "";
		} catch (error) {
			state.failed = words(error);
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
	save("replaceState"); // in its shortest form
	change({});
}

addEventListener("hashchange", start);
addEventListener("pagehide", () => state.model && save());
addEventListener("online", () => (state.failed || Object.values(state.answers).some(({ passing }) => passing)) && retry());
addEventListener("resize", drawLines);
addEventListener("keydown", (event) => {
	if (event.key === "Escape" && state.similar && event.target.id !== "query") close();
	if (event.key !== "/" || /^(input|select)$/i.test(event.target.tagName)) return;
	event.preventDefault();
	document.getElementById("query")?.focus();
});
start();
