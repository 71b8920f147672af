// The map of the items: a canvas with the history, the list and the steps of thinning on it, and the same as lists.
import { count, number, still, tags } from "./dom.js";
import { change, isCurrent, rememberNames, state } from "./store.js";
import { colourOf } from "./list.js";
import { player, stages, summary } from "./steps.js";
import { addButton, addChip, alertBox, iconButton, textButton, view } from "./parts.js";

// Its colours are needed before the first drawing.
await new Promise((done) => document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL("map.css", import.meta.url), onload: done, onerror: done })));

const { button, canvas, div, h3, label, li, ol, option, p, section, select, span, strong, ul } = tags;
const MOST_PICKED = 12, IN_VIEW = 12, LABELS = 40, REACH = 12, STRETCH = 1.4; // items of a lasso, items in view, labels; pixels around a pointer; of the longer side
const camera = { x: 0.5, y: 0.5, zoom: 1 };
let data, index, sizes; // the answer of /map, id -> place in its lists, and the radius of each dot
let hover = -1, path = [], pointers = new Map(), moved = 0, frame = 0, listing = 0, seen = "";
let base, pixels, baseKey, drawn = new Map(); // the picture of all dots, and the strength of each mark, which follows its target

const element = () => document.querySelector(".chart canvas");
const column = () => data.columns.find(({ name }) => name === state.colour) ?? data.columns[0];
const spots = (ids) => ids.map((item) => index.get(item)).filter((n) => n !== undefined);
const one = (n) => ({ item: data.items[n], name: data.names[n] });

function read(answer) {
	if (data === answer) return;
	[data, baseKey, hover] = [answer, "", -1];
	index = new Map(data.items.map((item, n) => [item, n]));
	const logs = data.users.map((users) => Math.log1p(users)), least = logs.at(-1), range = Math.max(logs[0] - least, 1e-9); // the most popular item is the first
	sizes = Float32Array.from(logs, (log) => 1.6 + 4.4 * ((log - least) / range) ** 2);
	Object.assign(camera, { x: 0.5, y: 0.5, zoom: 1 });
}

// Places on the canvas, in CSS pixels.
function projection(at) {
	const { clientWidth: width, clientHeight: height } = at, least = 0.94 * camera.zoom * Math.min(width, height);
	const [wide, high] = [width, height].map((length) => Math.min(STRETCH * least, 0.94 * camera.zoom * length));
	const across = (x) => (x - camera.x) * wide + width / 2, down = (y) => (y - camera.y) * high + height / 2;
	return {
		width, height, wide, high, across, down,
		x: (n) => across(data.x[n]),
		y: (n) => down(data.y[n]),
		back: (x, y) => [(x - width / 2) / wide + camera.x, (y - height / 2) / high + camera.y],
	};
}
const isVisible = ({ x, y, width, height }, n, edge = 8) => x(n) > -edge && x(n) < width + edge && y(n) > -edge && y(n) < height + edge;

// Items to mark: place -> [kind, colour]. Thinning shows a step of the reverse process, otherwise the list.
function marks() {
	const found = new Map(), all = state.thinning ? stages() : [];
	if (all.length) {
		const here = new Map(all[Math.min(state.step, all.length - 1)].items.map((item) => [item.item, item]));
		for (const n of spots(all[0].items.map(({ item }) => item))) found.set(n, ["gap", "--soft"]);
		for (const [item, { known, in_history }] of here) for (const n of spots([item])) found.set(n, known ? ["mine", "--ink"] : ["back", in_history ? "--accent" : "--below"]);
		return found;
	}
	for (const n of spots((state.answers.list?.data?.basis !== "popularity" && state.answers.list?.data?.items.map(({ item }) => item)) || [])) found.set(n, ["glow", "--glow"]);
	for (const item of state.history) for (const n of spots([item])) found.set(n, ["mine", colourOf(item)]);
	return found;
}

// Each mark fades to its target, and the picture is drawn again until all of them are there.
function animate(targets) {
	let busy = false;
	for (const n of new Set([...drawn.keys(), ...targets.keys()])) {
		const target = targets.has(n) ? 1 : 0, old = drawn.get(n) ?? { strength: 0 }, [kind, colour] = targets.get(n) ?? [old.kind, old.colour];
		const swapped = old.kind !== undefined && kind !== old.kind, from = swapped ? 0 : old.strength;
		const strength = still.matches || Math.abs(target - from) < 0.02 ? target : from + (target - from) * 0.12;
		busy ||= strength !== target;
		if (strength || target) drawn.set(n, { strength, kind, colour });
		else drawn.delete(n);
	}
	return busy;
}

export function paint() {
	cancelAnimationFrame(frame);
	frame = requestAnimationFrame(() => {
		const at = element();
		if (at && data?.items.length && animate(marks()) | draw(at)) paint();
	});
}

function draw(at) {
	const style = getComputedStyle(at), colour = (name) => style.getPropertyValue(name), ratio = devicePixelRatio || 1, to = projection(at);
	if (at.width !== Math.round(to.width * ratio) || at.height !== Math.round(to.height * ratio)) Object.assign(at, { width: Math.round(to.width * ratio), height: Math.round(to.height * ratio) });
	const pen = at.getContext("2d");
	pen.setTransform(ratio, 0, 0, ratio, 0, 0);
	pen.clearRect(0, 0, to.width, to.height);
	drawBase(to, colour, ratio, `${at.width} ${at.height} ${Object.values(camera)} ${colour("--paper")} ${state.colour} ${state.only}`);
	pen.globalAlpha = drawn.size ? 0.6 : 1;
	pen.drawImage(base, 0, 0, to.width, to.height);
	pen.globalAlpha = 1;
	const boxes = camera.zoom < 2.2 ? drawRegions(pen, to, colour) : [];
	if (!state.thinning) drawReasons(pen, to, colour);
	for (const [n, mark] of [...drawn].sort(([, one], [, other]) => (one.kind === "mine") - (other.kind === "mine"))) drawMark(pen, to, colour, n, mark);
	drawLabels(pen, to, colour, boxes);
	if (path.length > 1) drawLasso(pen, colour);
	return false;
}

// All dots, on a canvas of their own: an animation above them need not draw them again. Their pixels are computed here:
// filling 20,000 circles takes several times as long. While the map moves, they are as fine as CSS pixels.
function drawBase(to, colour, ratio, key) {
	const fine = listing ? Math.min(ratio, 1) : ratio, [wide, high] = [to.width, to.height].map((length) => Math.max(1, Math.round(length * fine)));
	if (baseKey === (baseKey = `${fine} ${key}`)) return;
	base ??= document.createElement("canvas");
	const pen = base.getContext("2d"), chosen = column(), grow = fine * Math.min(2.2, camera.zoom ** 0.35) * (data.items.length > 6000 ? 0.75 : 1) * Math.min(1, Math.min(to.width, to.height) / 560);
	if (pixels?.width !== wide || pixels.height !== high) Object.assign(base, { width: wide, height: high }), (pixels = pen.createImageData(wide, high));
	const out = pixels.data, words = new Uint32Array(out.buffer), [red, green, blue] = rgb(colour("--paper"));
	[out[0], out[1], out[2], out[3]] = [red, green, blue, 255];
	words.fill(words[0]);
	const inks = [colour("--other"), ...(chosen?.values ?? []).map((_, n) => colour(`--m${n}`))].map(rgb), strengths = inks.map((_, n) => (state.only !== "" && chosen?.values[n - 1] !== state.only ? 0.12 : 0.75));
	const [left, top] = [to.across(0) * fine, to.down(0) * fine], { x: xs, y: ys } = data;
	for (let n = 0; n < sizes.length; n++) {
		const x = left + xs[n] * to.wide * fine - 0.5, y = top + ys[n] * to.high * fine - 0.5, r = sizes[n] * grow, of = chosen ? chosen.of[n] + 1 : 0;
		const lowest = Math.max(0, Math.ceil(y - r - 0.5)), highest = Math.min(high - 1, Math.floor(y + r + 0.5)), first = Math.max(0, Math.ceil(x - r - 0.5)), last = Math.min(wide - 1, Math.floor(x + r + 0.5));
		if (lowest > highest || first > last) continue;
		const [inkRed, inkGreen, inkBlue] = inks[of], strength = strengths[of], inner = Math.max(0, r - 0.5) ** 2, outer = (r + 0.5) ** 2;
		for (let v = lowest; v <= highest; v++) for (let u = first, at = 4 * (v * wide + first); u <= last; u++, at += 4) {
			const apart = (u - x) ** 2 + (v - y) ** 2;
			if (apart >= outer) continue;
			const cover = apart <= inner ? strength : strength * (r + 0.5 - Math.sqrt(apart)); // smooth edges
			out[at] += (inkRed - out[at]) * cover;
			out[at + 1] += (inkGreen - out[at + 1]) * cover;
			out[at + 2] += (inkBlue - out[at + 2]) * cover;
		}
	}
	pen.putImageData(pixels, 0, 0);
}
function rgb(text) {
	const hex = text.trim().slice(1), of = hex.length / 3;
	return [0, 1, 2].map((n) => parseInt(hex.slice(n * of, (n + 1) * of).repeat(of === 1 ? 2 : 1), 16));
}

// The name of each category where its items are densest.
function regions() {
	const chosen = column(), cells = 14;
	if (!chosen || chosen.at) return chosen?.at ?? [];
	const total = new Float64Array(cells * cells), own = chosen.values.map(() => new Float64Array(cells * cells));
	const cell = (n) => Math.min(cells - 1, Math.floor(data.x[n] * cells)) * cells + Math.min(cells - 1, Math.floor(data.y[n] * cells));
	for (let n = 0; n < data.items.length; n++) total[cell(n)]++, own[chosen.of[n]] && own[chosen.of[n]][cell(n)]++;
	return (chosen.at = own.map((counts, value) => {
		const best = counts.reduce((top, here, n) => (here ** 2 / (total[n] + 2) > counts[top] ** 2 / (total[top] + 2) ? n : top), 0);
		return { text: chosen.values[value], value, x: (Math.floor(best / cells) + 0.5) / cells, y: ((best % cells) + 0.5) / cells };
	}));
}
function drawRegions(pen, to, colour) {
	pen.textAlign = "center";
	pen.lineJoin = "round";
	pen.font = `italic 600 ${Math.round(15 + 6 * Math.min(1, to.width / 900))}px ${colour("--serif")}`;
	const boxes = [];
	for (const { text, value, x, y } of regions()) {
		const left = to.across(x), top = to.down(y), half = pen.measureText(text.slice(0, 24)).width / 2 + 4, box = [left - half, top - 16, left + half, top + 8];
		if (!isFree(boxes, box)) continue;
		boxes.push(box);
		written(pen, text.slice(0, 24), left, top, colour(`--m${value}`), colour("--paper"));
	}
	return boxes;
}
const isFree = (boxes, box) => boxes.every(([x, y, u, v]) => box[2] < x || box[0] > u || box[3] < y || box[1] > v);
function written(pen, text, x, y, ink, paper) {
	pen.strokeStyle = paper;
	pen.lineWidth = 4;
	pen.strokeText(text, x, y);
	pen.fillStyle = ink;
	pen.fillText(text, x, y);
}

// Lines from a recommendation to the items of the history that are its reasons.
function drawReasons(pen, to, colour) {
	for (const { item, because } of state.answers.list?.data?.items ?? []) {
		const end = index.get(item), mark = drawn.get(end), whole = because.reduce((sum, { items, weight }) => sum + (items.length ? weight : 0), 0);
		if (mark?.kind !== "glow") continue;
		for (const { items, weight } of because.slice(0, 3)) for (const start of spots(items)) {
			const [x, y, u, v] = [to.x(start), to.y(start), to.x(end), to.y(end)], lit = hover === end || hover === start;
			pen.strokeStyle = colour(drawn.get(start)?.colour ?? "--soft");
			pen.globalAlpha = mark.strength * (lit ? 0.95 : 0.12 + 0.45 * (weight / whole));
			pen.lineWidth = lit ? 2 : 0.5 + 1.3 * (weight / whole);
			pen.beginPath();
			pen.moveTo(x, y);
			pen.quadraticCurveTo((x + u) / 2 + (v - y) * 0.12, (y + v) / 2 - (u - x) * 0.12, u, v);
			pen.stroke();
		}
	}
	pen.globalAlpha = 1;
}

function drawMark(pen, to, colour, n, { strength, kind, colour: name }) {
	const x = to.x(n), y = to.y(n), ink = colour(name), r = { glow: 5, mine: 6.5, back: 7, gap: 5.5 }[kind] * (0.4 + 0.6 * strength);
	if (!isVisible(to, n, 40)) return;
	pen.globalAlpha = strength;
	if (kind === "glow" || kind === "back") {
		const halo = pen.createRadialGradient(x, y, r / 2, x, y, 4.2 * r);
		halo.addColorStop(0, `${ink}b0`);
		halo.addColorStop(1, `${ink}00`);
		pen.fillStyle = halo;
		pen.beginPath();
		pen.arc(x, y, 4.2 * r, 0, 7);
		pen.fill();
	}
	pen.beginPath();
	pen.arc(x, y, r, 0, 7);
	pen.fillStyle = kind === "gap" ? colour("--paper") : ink;
	pen.fill();
	pen.lineWidth = 1.6;
	pen.strokeStyle = kind === "gap" ? ink : colour(kind === "glow" ? "--ink" : "--paper");
	pen.setLineDash(kind === "gap" ? [2.5, 2] : []);
	pen.stroke();
	pen.setLineDash([]);
	if (kind === "mine") {
		pen.strokeStyle = colour("--ink");
		pen.lineWidth = 1.2;
		pen.beginPath();
		pen.arc(x, y, r + 2.2, 0, 7);
		pen.stroke();
	}
	pen.globalAlpha = 1;
}

// Labels that do not overlap: the pointer's item, marked items, and then the most popular ones.
function drawLabels(pen, to, colour, boxes) {
	const marked = [...drawn.keys()].filter((n) => drawn.get(n).strength > 0.5).sort((one, other) => (drawn.get(other).kind === "mine") - (drawn.get(one).kind === "mine"));
	const names = new Set([...(hover >= 0 ? [hover] : []), ...spots([state.chosen]), ...marked]), most = Math.min(LABELS, (to.width * to.height) / 9000);
	pen.textAlign = "start";
	const write = (n, strong) => {
		const text = data.names[n].length > 34 ? `${data.names[n].slice(0, 32)}…` : data.names[n];
		pen.font = `${strong ? 600 : 400} ${strong ? 12.5 : 11.5}px ${colour("--sans")}`;
		const wide = pen.measureText(text).width, x = to.x(n), y = to.y(n);
		for (const left of [x + 10, x - 10 - wide]) {
			const box = [left - 3, y - 9, left + wide + 3, y + 9];
			if (box[0] < 0 || box[2] > to.width || (!isFree(boxes, box) && n !== hover)) continue;
			boxes.push(box);
			return written(pen, text, left, y + 4, colour(strong ? "--ink" : "--soft"), colour("--paper"));
		}
	};
	for (const n of names) boxes.push([to.x(n) - 6, to.y(n) - 6, to.x(n) + 6, to.y(n) + 6]);
	for (const n of names) if (isVisible(to, n)) write(n, true);
	for (let n = 0, tried = 0; n < data.items.length && boxes.length < most + 2 * names.size && tried < 400; n++) if (!names.has(n) && isVisible(to, n, 0)) tried++, write(n, false);
}

function drawLasso(pen, colour) {
	pen.beginPath();
	path.forEach(([x, y], n) => (n ? pen.lineTo(x, y) : pen.moveTo(x, y)));
	pen.closePath();
	pen.fillStyle = `${colour("--accent")}28`;
	pen.strokeStyle = colour("--accent");
	pen.lineWidth = 2;
	pen.fill();
	pen.stroke();
}

function inside(x, y) {
	let odd = false;
	for (let n = 0, last = path.length - 1; n < path.length; last = n++) {
		const [a, b] = path[n], [c, d] = path[last];
		if (b > y !== d > y && x < ((c - a) * (y - b)) / (d - b) + a) odd = !odd;
	}
	return odd;
}

// Makes the most popular of some items the history; Back undoes it.
function pick(places, where) {
	const chosen = places.slice(0, MOST_PICKED).map(one);
	if (!chosen.length) return change({ picked: `There are no items ${where}.` });
	rememberNames(chosen);
	const words = places.length > chosen.length ? `The ${chosen.length} most popular of ${count(places.length, "item")} ${where} are` : chosen.length === 1 ? `The item ${where} is` : `The ${chosen.length} items ${where} are`;
	change({ history: chosen.map(({ item }) => item), similar: "", lasso: false, picked: `${words} your history now.` }, true);
}
const inView = (to) => [...data.items.keys()].filter((n) => isVisible(to, n, 0));

function nearest(to, x, y) {
	let best = -1, least = REACH ** 2;
	for (let n = 0; n < data.items.length; n++) {
		const apart = (to.x(n) - x) ** 2 + (to.y(n) - y) ** 2 - (drawn.has(n) ? 40 : 0);
		if (apart < least) [best, least] = [n, apart];
	}
	return best;
}

function move(dx, dy, { wide, high }) {
	camera.x = Math.min(1, Math.max(0, camera.x - dx / wide));
	camera.y = Math.min(1, Math.max(0, camera.y - dy / high));
	settle();
}
function zoom(by, x, y) {
	const at = element(), [u, v] = projection(at).back(x ?? at.clientWidth / 2, y ?? at.clientHeight / 2);
	camera.zoom = Math.min(40, Math.max(1, camera.zoom * by));
	const [s, t] = projection(at).back(x ?? at.clientWidth / 2, y ?? at.clientHeight / 2);
	Object.assign(camera, camera.zoom === 1 ? { x: 0.5, y: 0.5 } : { x: camera.x + u - s, y: camera.y + v - t });
	settle();
}
function zoomToMarks() {
	const places = [...marks().keys()], ends = (of) => [Math.min(...places.map((n) => of[n])), Math.max(...places.map((n) => of[n]))];
	const [[left, right], [top, bottom]] = [ends(data.x), ends(data.y)];
	Object.assign(camera, { x: (left + right) / 2, y: (top + bottom) / 2, zoom: Math.min(12, Math.max(1, 0.75 / Math.max(right - left, bottom - top, 0.01))) });
	settle();
}
// The list of the items in view follows the map once it rests.
function settle() {
	paint();
	clearTimeout(listing);
	listing = setTimeout(() => ((listing = 0), change({})), 200);
}

const place = (event) => [event.offsetX, event.offsetY];
const onPointer = {
	onpointerdown: (event) => {
		event.target.setPointerCapture(event.pointerId);
		pointers.set(event.pointerId, place(event));
		moved = 0;
		if (pointers.size === 1 && (state.lasso || event.shiftKey)) path = [place(event)];
		else path = [];
	},
	onpointermove: (event) => {
		const to = projection(event.target), [x, y] = place(event), old = pointers.get(event.pointerId);
		if (!old) {
			const found = nearest(to, x, y);
			event.target.style.setProperty("cursor", state.lasso ? "crosshair" : found >= 0 ? "pointer" : "grab");
			if (found !== hover) (hover = found), paint();
			return;
		}
		moved += Math.hypot(x - old[0], y - old[1]);
		if (path.length) path.push([x, y]), paint();
		else if (pointers.size === 2) {
			const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at), span = (from) => Math.hypot(from[0] - other[0], from[1] - other[1]);
			zoom(span([x, y]) / Math.max(span(old), 1), (x + other[0]) / 2, (y + other[1]) / 2);
		} else move(x - old[0], y - old[1], to);
		pointers.set(event.pointerId, [x, y]);
	},
	onpointerup: (event) => {
		const to = projection(event.target);
		pointers.delete(event.pointerId);
		if (path.length > 3 && moved > 20) {
			const found = [...data.items.keys()].filter((n) => isVisible(to, n) && inside(to.x(n), to.y(n)));
			path = [];
			return pick(found, "in the lasso");
		}
		path = [];
		if (moved < 6) {
			const found = nearest(to, ...place(event));
			if (found >= 0) rememberNames([one(found)]);
			change({ chosen: found < 0 ? "" : data.items[found] });
		}
	},
	onpointercancel: ({ pointerId }) => void (pointers.delete(pointerId), (path = [])),
	onpointerleave: () => hover >= 0 && ((hover = -1), paint()),
	onwheel: (event) => (event.preventDefault(), zoom(Math.exp(-event.deltaY / 400), ...place(event))),
	onkeydown: (event) => {
		const by = 60, moves = { ArrowLeft: [by, 0], ArrowRight: [-by, 0], ArrowUp: [0, by], ArrowDown: [0, -by] };
		if (moves[event.key]) move(...moves[event.key], projection(event.target));
		else if (["+", "="].includes(event.key)) zoom(1.4);
		else if (event.key === "-") zoom(1 / 1.4);
		else if (event.key === "0") zoom(0);
		else return;
		event.preventDefault();
	},
};

function legend() {
	const chosen = column();
	return chosen && div({ class: "key legend" },
		data.columns.length > 1 && label(null, "Colour ", select({ value: chosen.name, onchange: ({ target }) => change({ colour: target.value, only: "" }) }, data.columns.map(({ name }) => option({ key: name, value: name }, name)))),
		chosen.values.map((value, n) => button({ key: value, class: `swatch m${n}`, "aria-pressed": String(state.only === value), onclick: () => change({ only: state.only === value ? "" : value }) }, value)),
		chosen.of.includes(-1) && span({ class: "swatch m" }, "other"));
}

function card() {
	const n = index.get(state.chosen);
	if (n === undefined) return false;
	const listed = state.answers.list?.data?.items.find(({ item }) => item === state.chosen), mine = state.history.includes(state.chosen);
	return section({ class: "chosen", "aria-label": data.names[n] },
		div({ class: "what" }, div(null, strong({ dir: "auto" }, data.names[n]),
			p({ class: "note" }, `${count(data.users[n], "user")}. `, mine ? "In your history." : listed && state.history.length ? `Rank ${listed.rank}${listed.because.length ? `, because of ${listed.because.slice(0, 3).map(({ text }) => text).join(", ")}` : ""}.` : ""))),
		div({ class: "acts" },
			!mine && addButton(one(n)),
			!mine && !listed && state.history.length > 0 && iconButton("?", `Why is ${data.names[n]} not in the list?`, () => {
				rememberNames([one(n)]);
				change({ view: "list", whynot: state.chosen, asking: true }, true);
				document.querySelector(".whynot").scrollIntoView({ block: "center" });
			}),
			iconButton("×", "Close", () => change({ chosen: "" }))));
}

// What the canvas shows, as lists.
function lists(to) {
	const here = to && to.width ? inView(to) : [...data.items.keys()], shown = here.slice(0, IN_VIEW), answer = state.answers.list?.data;
	const lit = (n) => ({ onmouseenter: () => ((hover = n), paint()), onmouseleave: () => ((hover = -1), paint()) });
	const best = (answer?.basis !== "popularity" && answer?.items.slice(0, IN_VIEW)) || [];
	return div({ class: "pair lists" },
		section(null, h3(null, "Recommended"),
			best.length
				? ol({ class: isCurrent("list") ? "brief" : "brief stale" }, best.map((item) => li({ key: item.item, ...lit(index.get(item.item) ?? -1) }, span({ class: "rank" }, item.rank), span({ class: "name", dir: "auto" }, item.name, item.because.length > 0 && span({ class: "note" }, ` because of ${item.because.slice(0, 2).map(({ text }) => text).join(", ")}`)), addButton(item))))
				: p({ class: "note" }, "Add items to the history: click a dot, draw a lasso, or search.")),
		section(null, h3(null, here.length === data.items.length ? "All items" : "In view"),
			p({ class: "note" }, here.length > shown.length ? `The ${shown.length} most popular of ${number(here.length)}.` : count(here.length, "item") + "."),
			ul({ class: "chips" }, shown.map((n) => li({ key: data.items[n], ...lit(n) }, state.history.includes(data.items[n]) ? span({ class: "chip right" }, span({ class: "sign" }, "✓"), data.names[n]) : addChip(one(n))))),
			here.length > 0 && textButton("Make these my history", () => pick(here, "in view"))));
}

export function map() {
	const { data: found, error } = state.answers.map ?? {}, title = "Taste map";
	if (!found || error) return view("map", title, found || error ? "" : "Loading the map …", alertBox(error));
	read(found);
	if (found.note) return view("map", title, found.note, p({ class: "note" }, "The list, the comparison and the other views work without it."));
	const at = element(), mine = state.history.length, shown = new Set(marks().keys()).size;
	const lead = state.thinning ? "Items of your history are removed, and the model restores them step by step." : mine ? "Your history is ringed and the list glows; lines lead from each recommendation to its reasons." : "Each dot is an item, and similar items lie together. Draw a lasso around some, or click one.";
	return view("map", title, lead,
		div({ class: "below tools" },
			button({ class: "plain", "aria-pressed": String(state.lasso), onclick: () => change({ lasso: !state.lasso }) }, "Lasso"),
			button({ class: "plain", "aria-pressed": String(state.thinning), disabled: mine < 2, title: mine < 2 && "Add at least two items to the history", onclick: () => change({ thinning: !state.thinning, step: 0 }) }, "Thinning"),
			iconButton("+", "Zoom in", () => zoom(1.5)), iconButton("−", "Zoom out", () => zoom(1 / 1.5)), textButton("Whole map", () => zoom(0)), shown > 0 && textButton("Zoom to my list", zoomToMarks)),
		state.thinning && stages().length > 1 && player(stages().length - 1),
		div({ class: "chart" }, canvas({ tabindex: 0, role: "application", "aria-label": `Map of ${count(data.items.length, "item")}, ${shown} marked. Arrow keys move it, plus and minus zoom. The lists below say the same.`, ...onPointer })),
		legend(),
		state.picked && p({ class: "note", role: "status" }, state.picked),
		card(),
		state.thinning && stages().length > 1 && state.step >= stages().length - 1 && p({ class: "lead" }, summary(stages())),
		lists(at && projection(at)),
		p({ class: "note" }, found.without > 0 && `${count(found.without, "item")} without a place: too few users, or nothing similar. `, "Size is popularity. Shift and drag draws a lasso, too. Sliders and filters change what glows."));
}
addEventListener("resize", () => element() && paint());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => paint());
