// A process of callers in JavaScript: it takes its job as JSON from standard input, waits for an empty line, sends the
// job's requests through one client, and prints a report.
import {createHash} from 'node:crypto';
import {createInterface} from 'node:readline';

import {countedFetch, newReport, overFetch, paceOptions, work} from './work.js';

const lines = createInterface({input: process.stdin})[Symbol.asyncIterator]();
const job = JSON.parse((await lines.next()).value);
const counts = newReport();
const counted = countedFetch(counts);

/** The contestants: each returns a function that sends one request. */
const contestants = {
  async 'clients/js'() {
    const {pace} = await import('../../../clients/js/pace.js');
    const paced = pace(paceOptions(job))(counted);
    paced.addEventListener('refused', () => counts.report.Told++);
    return overFetch(paced);
  },
  async 'fetch'() {
    return overFetch(counted);
  },
  async 'fetch, p-retry'() {
    const {default: pRetry} = await import('p-retry');
    const send = overFetch(counted);
    return (request) => pRetry(async () => {
      const answer = await send(request);
      if (answer.status === 429) throw new Error('refused');
      return answer;
    });
  },
  async 'ky'() {
    const {default: ky} = await import('ky');
    const client = ky.create({fetch: counted, timeout: false, retry: {limit: 10, methods: ['get', 'put', 'post'], statusCodes: [429]}});
    return overFetch((url, init) => client(url, init));
  },
  async 'axios-retry'() {
    const {default: axios} = await import('axios');
    const {default: axiosRetry} = await import('axios-retry');
    const http = axios.getAdapter('http');
    const adapter = async (config) => {
      counts.sending();
      const count = (answer) => answer && counts.answered(answer.status, answer.headers['x-ratelimit-reset'] ?? 0);
      try {
        const answer = await http(config);
        count(answer);
        return answer;
      } catch (error) {
        count(error.response);
        throw error;
      }
    };
    const client = axios.create({adapter, responseType: 'text'});
    axiosRetry(client, {retries: 10, retryCondition: (error) => error.response?.status === 429});
    return async ({url, method, headers, body}) => {
      const answer = await client.request({url, method, headers, data: body});
      return {status: answer.status, text: String(answer.data)};
    };
  },
};

const open = contestants[job.Who];
if (!open) throw new Error(`there is no contestant ${JSON.stringify(job.Who)}: expected one of ${Object.keys(contestants).join(', ')}`);
const send = await open();
console.log('ready');
await lines.next();
const print = () => process.stdout.write(`${JSON.stringify(counts.report)}\n`, () => process.exit(0));
const late = setTimeout(() => {
  counts.report.Failed = job.Requests - counts.report.Served;
  counts.report.First ||= `not answered within ${job.Within / 1e9} s`;
  print();
}, job.Within / 1e6);
await work(job, counts.report, send, async (text) => createHash('sha256').update(text).digest('hex'));
clearTimeout(late);
print();
