// Drives the suite's own client: lists its tests, or runs some of them. The one argument is JSON; see suite.rs.
import fs from 'node:fs'
import { createRequire } from 'node:module'

const plan = JSON.parse(process.argv[2])

const groups = []
for (const file of plan.tests) {
  groups.push(...[(await import(file)).default].flat())
}

if (plan.base === undefined) {
  const list = groups.flatMap(group => group.tests.filter(test => test.browser_only !== true).map(test => ({
    id: test.id, group: group.name, name: test.name, kind: test.kind ?? 'required', depends_on: test.depends_on ?? []
  })))
  fs.writeFileSync(plan.out, JSON.stringify(list))
} else {
  for (const group of groups) {
    group.tests = group.tests.filter(test => plan.ids === null || plan.ids.includes(test.id))
    for (const test of group.tests) test.dump = plan.dump
  }
  const { runTests, getResults } = await import(plan.runner)
  // The release wants to be given a `fetch`, the newer client takes the one of Node.
  const fetch = plan.fetch ? [createRequire(plan.runner)(plan.fetch)] : []
  await runTests(groups, ...fetch, false, plan.base, plan.at_once)
  fs.writeFileSync(plan.out, JSON.stringify(getResults()))
}
