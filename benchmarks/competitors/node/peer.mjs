// Alters and describes client quotas with @platformatic/kafka, one job for each line of standard
// input. The jobs and their results are those of benchmarks/competitors/jobs.py.
import { createInterface } from 'node:readline'
import { Admin } from '@platformatic/kafka'

const admin = new Admin({ clientId: 'quota-peer', bootstrapBrokers: [process.argv[2]] })

function entries ({ entities, values }) {
  const ops = Object.entries(values).map(([key, value]) => ({ key, value, remove: false }))
  return entities.map(names => ({
    entities: Object.entries(names).map(([entityType, entityName]) => ({ entityType, entityName })),
    ops
  }))
}

async function timed (call) {
  const begun = performance.now()
  const answer = await call()
  const ms = performance.now() - begun
  const refused = answer.find(({ errorCode }) => errorCode)
  if (refused) {
    throw new Error(JSON.stringify(refused))
  }
  return { ms, entities: answer.length }
}

async function run (job) {
  if (job.do === 'describe') {
    return timed(() => admin.describeClientQuotas({ components: [] }))
  }
  const all = entries(job)
  return timed(() => admin.alterClientQuotas({ entries: all }))
}

for await (const line of createInterface({ input: process.stdin })) {
  let result
  try {
    result = await run(JSON.parse(line))
  } catch (error) {
    result = { error: String(error.errors?.[0] ?? error) }
  }
  console.log(JSON.stringify(result))
}
await admin.close()
