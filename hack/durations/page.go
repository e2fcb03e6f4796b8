// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

const introduction = `# Durations

Every duration of Refract: how long it waits, how often it looks, when it gives up. The page is made from the code by
` + "`make generate`" + `. [Compatibility](compatibility.md) has the flags of Liqo among these, and what differs.

## Set by flags

The defaults. Values of the chart set some of them, and
` + "`controllerManager.extra.args` and `virtualKubelet.extra.args`" + ` all of the two processes.

| package | flag | default | meaning |
|---|---|---|---|
`

const constants = `
## Fixed

Each comment says what the duration bounds, and where it matters, what gets worse when it is changed.

| package | name | value | meaning |
|---|---|---|---|
`

// page returns a Markdown page that lists the durations.
func page(d *durations) string {
	var b strings.Builder
	b.WriteString(introduction)
	writeRows(&b, d.named, true)
	b.WriteString(constants)
	writeRows(&b, d.named, false)
	return b.String()
}

func writeRows(b *strings.Builder, all []duration, flags bool) {
	escape := strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;").Replace
	for _, one := range all {
		if one.isFlag == flags {
			fmt.Fprintf(b, "| %s | `%s` | %s | %s |\n", one.pkg, one.name, escape(one.value), escape(strings.TrimPrefix(one.meaning, one.name+" ")))
		}
	}
}
