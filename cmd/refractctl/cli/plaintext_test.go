// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/printable"
)

// attack is a text with every kind of character that a terminal interprets or hides, and with a forged line.
const attack = "x\x1b]0;pwned\a\x1b[2K\r\u009b31m\u202egnp\u200b\x07\nmilan: everything is fine\tOK\xff"

// isPlain fails the test if a text contains a character that a terminal interprets.
func isPlain(t *testing.T, text string) {
	t.Helper()
	if text == "" {
		t.Error("nothing was printed")
	}
	for line := range strings.Lines(text) {
		if line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", ""); !printable.IsLine(line) {
			t.Errorf("it is printed raw: %q", line)
		}
		if strings.HasPrefix(line, "milan: everything") {
			t.Errorf("a line was forged: %q", line)
		}
	}
}

func TestWhatPeopleReadIsPlain(t *testing.T) {
	rows := []string{attack}
	for name, print := range map[string]func(cmd *cobra.Command, out io.Writer) error{
		"progress": func(_ *cobra.Command, out io.Writer) error { invocation.PrintTo(out)(attack); return nil },
		"waiting":  func(_ *cobra.Command, out io.Writer) error { invocation.WriteWaiting(out, attack, attack); return nil },
		"text":     func(_ *cobra.Command, out io.Writer) error { _, err := fmt.Fprint(out, attack); return err },
		"table": func(_ *cobra.Command, out io.Writer) error {
			return invocation.PrintTable(out, "A\tB", rows, func(text string) []string { return []string{text, "ok"} })
		},
	} {
		if name == "text" { // the text format has several lines
			print = func(_ *cobra.Command, out io.Writer) error {
				_, err := fmt.Fprint(out, strings.ReplaceAll(attack, "\n", ""))
				return err
			}
		}
		for _, toErr := range []bool{true, false} {
			out := &bytes.Buffer{}
			command := &cobra.Command{Use: "test"}
			command.RunE = func(cmd *cobra.Command, _ []string) error {
				if toErr {
					return print(cmd, cmd.ErrOrStderr())
				}
				return print(cmd, cmd.OutOrStdout())
			}
			invocation.WithPlainText(command)
			invocation.WithStatusLine(command)
			command.SetArgs(nil)
			command.SetOut(out)
			command.SetErr(out)
			require.NoError(t, command.Execute())
			t.Run(fmt.Sprintf("%s/%t", name, toErr), func(t *testing.T) { isPlain(t, out.String()) })
		}
	}
}

// TestWhatProgramsReadIsExact checks that programs get the exact output. It is escaped only on a terminal, where people
// read it.
func TestWhatProgramsReadIsExact(t *testing.T) {
	value := map[string]any{"kind": "List", "apiVersion": "v1", "metadata": map[string]any{"name": "x"}, "text": "\u202e\x1bend"}
	for format, plain := range map[string]bool{"json": true, "yaml": true, "jsonpath={.text}": true, "go-template={{.text}}": true} {
		command := &cobra.Command{Use: "test"}
		output := invocation.AddOutput(command, format)
		command.RunE = func(cmd *cobra.Command, _ []string) error {
			printer, err := output.NewPrinter()
			if err != nil {
				return err
			}
			return printer.PrintObj(&unstructured.Unstructured{Object: value}, invocation.UnchangedWriter(cmd.OutOrStdout()))
		}
		invocation.WithPlainText(command)
		command.SetArgs(nil)
		piped := &bytes.Buffer{}
		command.SetOut(piped)
		require.NoError(t, command.Execute())
		switch format {
		case "json":
			var got map[string]any
			require.NoError(t, json.Unmarshal(piped.Bytes(), &got))
			assert.Equal(t, value, got)
		case "yaml":
		default:
			assert.Equal(t, value["text"], strings.TrimSuffix(piped.String(), "\n"), format)
		}

		screen, file := terminal(t)
		command.SetOut(file)
		require.NoError(t, command.Execute())
		_, err := file.WriteString("<end>")
		require.NoError(t, err)
		shown, part := "", make([]byte, 4096)
		for !strings.HasSuffix(shown, "<end>") {
			n, err := screen.Read(part)
			require.NoError(t, err)
			shown += string(part[:n])
		}
		assert.Equal(t, plain, printable.Text(shown) == strings.ReplaceAll(shown, "\r\n", "\n"), "%s shows %q", format, shown)
	}
}

// hostile returns the address of an API server that responds to all requests with a malicious error and warning.
func hostile(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Warning", "299 - \"all is well \u202e\"")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": attack + strings.Repeat("long", 1<<20)})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestErrorsOfAnAPIServerArePlain checks that errors and warnings of an API server are escaped in all output of the
// program.
func TestErrorsOfAnAPIServerArePlain(t *testing.T) {
	s := &stranger{url: hostile(t)}
	file := s.kubeconfig(t, false, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.InsecureSkipTLSVerify = true })
	for _, args := range [][]string{
		{"info"}, {"doctor"}, {"offload", "namespace", "shop"}, {"cordon", "virtualnode", "milan"}, {"generate", "peering-user", "rome"}, {"get", "virtualnode"},
		onCluster("peer", "--remote-kubeconfig="+file, "--trust-remote-kubeconfig"),
	} {
		if args[0] != "peer" {
			args = append(args, "--kubeconfig="+file)
		}
		out, progress, code := process(t, "refractctl", args...)
		assert.NotZero(t, code, "%s", args)
		isPlain(t, out+progress)
		assert.Less(t, len(progress), 4*invocation.MostError, "%s", args)
	}
}

func TestWarningsOfAnAPIServerArePlain(t *testing.T) {
	out := &bytes.Buffer{}
	invocation.QuietLibraries(out)
	t.Cleanup(func() { invocation.QuietLibraries(os.Stderr) })
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: hostile(t), TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	require.NoError(t, err)
	_ = clients.Discovery().RESTClient().Get().AbsPath("/api").Do(t.Context())
	assert.Contains(t, out.String(), `Warning: all is well`)
	assert.Contains(t, out.String(), `\u202e`)
	isPlain(t, out.String())
}
