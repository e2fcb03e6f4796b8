// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// screen returns the lines that a terminal shows after it has received the text.
func screen(text string) []string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if at := strings.LastIndex(line, overwrite); at >= 0 {
			line = line[at+len(overwrite):]
		}
		lines = append(lines, line)
	}
	return lines
}

func TestStatusLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	clock := time.Now()
	line := &statusLine{out: &out, now: func() time.Time { return clock }, width: func() int { return 40 }}
	say := func(text string) { fmt.Fprint(line, text) }
	say("applying 13 CRDs\nDeployment liqo/manager: 0 of 2 ")
	say("replicas\n")
	assert.Equal(t, []string{"applying 13 CRDs", "Deployment liqo/manager: 0 of 2 replicas"[:39]}, screen(out.String()))
	clock = clock.Add(12 * time.Second)
	require.NoError(t, line.drawLine())
	assert.Equal(t, "Deployment liqo/manager: 0 of 2 rep (12s)"[:33]+" (12s)", screen(out.String())[1])
	say("Deployment liqo/manager: 1 of 2 replicas\n")
	clock = clock.Add(time.Minute)
	say("milan: warning: no quotas\nmilan: creating virtual node milan\n") // both steps must stay on the screen
	WriteWaiting(line, "milan", "2 pods are left")
	WriteWaiting(line, "milan", "1 pod is left")
	fmt.Fprintln(line.settlingWriter(&out), "the result")
	assert.Equal(t, []string{
		"applying 13 CRDs", "Deployment liqo/manager: 1 of 2 replicas (1m0s)", "milan: warning: no quotas", "milan: creating virtual node milan", "milan: 1 pod is left", "the result", "",
	}, screen(out.String()))
	require.NoError(t, line.finishLine()) // no line is left to finish
	assert.True(t, strings.HasSuffix(out.String(), "the result\n"))
}

func TestWithoutATerminalLinesArePlain(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	command := &cobra.Command{RunE: func(cmd *cobra.Command, _ []string) error {
		WriteWaiting(cmd.ErrOrStderr(), "milan", "2 pods are left")
		WriteWaiting(cmd.ErrOrStderr(), "milan", "1 pod is left")
		return nil
	}}
	WithStatusLine(command)
	command.SetArgs(nil)
	command.SetErr(write)
	require.NoError(t, command.Execute())
	require.NoError(t, write.Close())
	text := make([]byte, 1024)
	n, err := read.Read(text)
	require.NoError(t, err)
	assert.Equal(t, "milan: 2 pods are left\nmilan: 1 pod is left\n", string(text[:n]))
}
