// Requests that no route covers: pacer/family.go in JavaScript. They begin with one line for all. If
// the answers to a path describe another budget, that path gets a line of its own.

/** @type {import('./types.js').placeOf} */
const placeOf = ({ method, url }) => method + ' ' + new URL(url).pathname.split('/').map(part =>
  part.length > 40 || /\d/.test(part) && !/^v.{1,3}$/i.test(part) ? '*' : part).join('/');

/** @type {import('./types.js').familyOf} */
export const familyOf = first => {
  const lines = [first], places = new Map();
  return {
    line: request => places.get(placeOf(request)) ?? first,

    // The line whose budget an answer describes.
    assign(request, line, fields, views, now) {
      const place = placeOf(request), known = places.get(place), { name } = fields;
      if (known && (!name || !known.name || known.name == name)) return known;
      const fitting = lines.filter(other => (!name || !other.name || other.name == name)
        && describes(views.get(other.windows[0].key), fields, now));
      let to = /** @type {typeof line | undefined} */ (fitting.find(other => other.key == line.key) ?? fitting[0]);
      if (!to) {
        const key = `${first.key} ${place}`;
        to = lines.find(other => other.key == key);
        if (!to && lines.length == 64) return line;
        to ??= { ...first, key, name: '', windows: [{ ...first.windows[0], key }] };
        if (!lines.includes(to)) lines.push(to);
      }
      if (name) to.name = name;
      if (known || places.size < 1024) places.set(place, to);
      return to;
    },
  };
};

/** @type {import('./types.js').describes} */
const describes = (budget, { limit, reset, after, date }, now) => {
  if (!budget?.limit) return true;
  if (limit && limit != budget.limit) return false;
  if (budget.phase != 1 || now >= budget.restored(now)) return true;
  if (!budget.distance(reset, after, date, { cost: 0, place: 0, at: now, now, length: 0 })) return true;
  const restored = after ? now + after : date && !budget.at ? now + reset - date : budget.reaches(reset, now);
  return Math.abs(restored - budget.restored(now)) <= now - budget.seen + 2000;
};
