// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"net/url"
	"time"

	"github.com/stretchr/testify/require"
)

// Properties of milan's network connection while it is slow: the additional delay of packets in each direction, and the
// share of lost packets.
const (
	slowDelay = 100 * time.Millisecond
	slowLoss  = 0.02
)

// slowLine tests connections between the pods of the clusters, in the namespace both, while the network between the
// clusters is slow, interrupted and restored. On the slow network everything must work, changes during the interruption
// must arrive afterwards, and running pods must keep running.
func (w *world) slowLine() {
	w.Helper()
	const (
		kubectl = "kubectl --namespace=both "
		inMilan = "kubectl --context=milan --namespace=both "
		create  = kubectl + `apply --filename=testdata/late.yaml >/dev/null; `
		mode    = inMilan + `get configmap settings --output=jsonpath={.data.mode}`
		// Each line of the log contains its own line number.
		noGap = kubectl + `logs counter | awk "\$2 != NR { gap = 1 } END { print (gap || NR < 10 ? \"gap\" : \"whole\") }"`
	)
	setMode := func(value string) string {
		return kubectl + `patch configmap settings --patch="{\"data\":{\"mode\":\"` + value + `\"}}" >/dev/null; `
	}
	running := func() string {
		const fields = ` --output=jsonpath='{range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount};{end}'`
		return w.run(kubectl+"get pods here there counter"+fields) + w.run(inMilan+"get pods there counter"+fields)
	}
	address := func(pod string) string {
		return w.run(kubectl + "get pod " + pod + " --output=jsonpath={.status.podIP}")
	}

	w.run(kubectl + "wait --for=condition=Ready pod/here pod/there pod/counter --timeout=5m")
	before, here, there := running(), address("here"), address("there")
	milan := w.lab.Milan.Machines()[0]
	w.Logf("a round trip takes %s", w.roundTrip())
	require.NoError(w, w.lab.Network.Slow(milan, slowDelay, slowLoss))
	for range 3 {
		trip := w.roundTrip()
		w.Logf("on the slow line it takes %s", trip)
		require.GreaterOrEqual(w, trip, 2*slowDelay)
	}
	w.verify([]check{
		{"slow: traffic to there", manyTimes("here", there+":8080"), `^pod=there node=milan-node-1\n$`},
		{"slow: traffic from there", manyTimes("there", here+":8080"), `^pod=here node=rome-node-1\n$`},
		{"slow: a Service of both clusters", manyTimes("here", "web.both.svc.cluster.local"), `(?s)pod=here.*pod=there`},
		{"slow: logs", noGap, `^whole\n$`},
		{"slow: exec", kubectl + `exec there -- hostname`, `^there\n$`},
		{"slow: a pod is created", create + kubectl + `wait --for=condition=Ready pod/late --timeout=50s`, `condition met`},
		{"slow: a ConfigMap is updated", setMode("slow") + mode, `^slow$`},
		{"slow: a pod is deleted", kubectl + `delete pod late --ignore-not-found --timeout=50s >/dev/null; ` + inMilan + `get pod late`, `NotFound`},
	})

	w.run(create)
	require.NoError(w, w.lab.Network.Cut(milan))
	_, err := w.lab.Run("timeout 5 " + kubectl + "exec there -- hostname")
	require.Error(w, err, "the line is cut")
	w.run(kubectl + "delete pod late --wait=false")
	w.run("sed s/late/later/ testdata/late.yaml | " + kubectl + "apply --filename=-")
	w.run(setMode("cut"))
	require.NoError(w, w.lab.Network.Mend(milan))
	w.verify([]check{
		{"whole: what was deleted meanwhile is gone", kubectl + `get pod late; ` + inMilan + `get pod late`, `(?s)NotFound.*NotFound`},
		{"whole: what was created meanwhile runs", kubectl + `wait --for=condition=Ready pod/later --timeout=50s`, `condition met`},
		{"whole: what was updated meanwhile has arrived", mode, `^cut$`},
		{"whole: traffic to there", manyTimes("here", there+":8080"), `^pod=there node=milan-node-1\n$`},
		{"whole: traffic from there", manyTimes("there", here+":8080"), `^pod=here node=rome-node-1\n$`},
		{"whole: logs, of all of the time", noGap, `^whole\n$`},
		{"whole: exec", kubectl + `exec there -- hostname`, `^there\n$`},
	})
	require.Equal(w, before, running(), "the pods are the same, and were not restarted")
}

// roundTrip measures the round-trip time from rome to milan as the time that opening a connection takes.
func (w *world) roundTrip() time.Duration {
	w.Helper()
	server, err := url.Parse(w.lab.Milan.Server())
	require.NoError(w, err)
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	begun := time.Now()
	conn, err := w.lab.Rome.Machines()[0].Dial(ctx, server.Host)
	require.NoError(w, err)
	trip := time.Since(begun)
	require.NoError(w, conn.Close())
	return trip
}
