// A dedicated worker that paces itself with the tabs of its origin.
import { pace } from '/pace/pace.js';

const paced = pace()(fetch), refused = [];
paced.addEventListener('refused', () => refused.push('429'));

onmessage = async ({ data: n }) => {
  const all = await Promise.all(Array.from({ length: n }, () => paced('/v1/wp/documents', { headers: { authorization: 'Bearer wpt_demo_secret' } })));
  postMessage(all.map(response => `${response.status} ${response.headers.get('x-ratelimit-reset')}`).concat(refused));
};
