// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

// terminal opens a pseudo-terminal. Text that is written to file can be read from screen.
func terminal(t *testing.T) (screen, file *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there are no pseudoterminals: %v", err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0))
	file, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return screen, file
}

func TestOnATerminalALineIsOverwritten(t *testing.T) {
	t.Setenv("TERM", "xterm")
	shown, file := terminal(t)
	command := &cobra.Command{Use: "test", RunE: func(cmd *cobra.Command, _ []string) error {
		invocation.WriteWaiting(cmd.ErrOrStderr(), "milan", "2 pods are left")
		invocation.WriteWaiting(cmd.ErrOrStderr(), "milan", "1 pod is left")
		fmt.Fprintln(cmd.OutOrStdout(), "the result")
		return nil
	}}
	invocation.WithStatusLine(command)
	command.SetArgs(nil)
	command.SetErr(file)
	command.SetOut(file)
	require.NoError(t, command.Execute())
	const overwrite = "\r\x1b[K"
	want := overwrite + "milan: 2 pods are left" + overwrite + "milan: 1 pod is left" + overwrite + "milan: 1 pod is left\r\nthe result\r\n"
	text := make([]byte, len(want)) // a single read from a terminal may return only part of the text
	_, err := io.ReadFull(shown, text)
	require.NoError(t, err)
	assert.Equal(t, want, string(text))
}
