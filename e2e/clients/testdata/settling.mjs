// Calls an API that gives units back, and prints what became of the calls.

import { pace } from '../../../clients/js/pace.js';

const [url, calls, workers, routes] = [process.argv[2], +process.argv[3], +process.argv[4], JSON.parse(process.argv[5])];
const paced = pace({ routes })(fetch);
let refused = 0, served = 0, left = calls;
paced.addEventListener('refused', () => refused++);
await Promise.all(Array.from({ length: workers }, async () => {
  while (left-- > 0) {
    const response = await paced(`${url}/v1/chat`, { method: 'POST' });
    await response.json();
    if (response.status == 200) served++;
  }
}));
console.log(JSON.stringify({ served, refused }));
