// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/registry"
)

// check is a command line for the administrator's shell, together with the output that it must print eventually.
type check struct{ what, line, want string }

// The timeout and the interval of checks. An autoscaler acts after three measurements, which are 10 s apart. Some
// machines are several times slower than the one for which the timeout was chosen.
const (
	patience  = 5 * time.Minute
	lookEvery = 200 * time.Millisecond
)

// verify runs the checks one after the other, each as a subtest, so that the others also run if one fails.
func (w *world) verify(checks []check) {
	w.Helper()
	for _, c := range checks {
		w.Run(c.what, func(t *testing.T) {
			want := regexp.MustCompile(c.want)
			var out string
			var err error
			if wait.PollUntilContextTimeout(t.Context(), lookEvery, patience, true, func(context.Context) (bool, error) {
				out, err = w.lab.Run("timeout 60 bash -c '" + c.line + "'")
				return want.MatchString(out), nil
			}) != nil {
				t.Fatalf("%s\nprints\n%s(%v)\nwant %s", c.line, out, err, c.want)
			}
		})
	}
}

// privateRegistry contains kubectl arguments for creating a Secret with which images below private/ can be pulled.
const privateRegistry = "--docker-server=registry.example.com --docker-username=" + registry.PullUser + " --docker-password=" + registry.PullPassword

// features checks that the virtual node supports the features of a real node, in the namespace features.
func (w *world) features() {
	w.Helper()
	for _, cluster := range []*testenv.Cluster{w.lab.Rome, w.lab.Milan} {
		require.NoError(w, cluster.StartMetricsServer(w.Context()))
	}
	w.run("kubectl --context=milan apply --filename=testdata/volumes.yaml")
	w.run("kubectl --context=milan annotate namespace liqo-tenant-rome tenants.refract.io/storage-classes=local" +
		" tenants.refract.io/volume-types=configMap,csi,downwardAPI,emptyDir,ephemeral,image,persistentVolumeClaim,projected,secret")
	w.run("refractctl install --context=rome --set=storage.enabled=true --set=storage.realStorageClassName=local")
	w.run("kubectl create namespace features")
	w.run("refractctl offload namespace features --pod-offloading-strategy=Remote --namespace-mapping-strategy=EnforceSameName")
	w.run("kubectl --namespace=features create secret docker-registry registry " + privateRegistry)
	w.run("kubectl --namespace=features apply --filename=testdata/features.yaml")
	const kubectl = "kubectl --namespace=features "
	there, back := w.lab.Path("there"), w.lab.Path("back")
	forward := func(to, ports string) string {
		return "exec 3< <(exec " + kubectl + "port-forward " + to + " " + ports + "); read line <&3; curl --silent --max-time 30 127.0.0.1:" + ports[:5] + "; kill $!"
	}
	w.verify([]check{
		{"probes, init containers and sidecars", kubectl + `wait --for=condition=Ready pod/web pod/client pod/echo pod/volumes --timeout=30s`, `pod/web condition met`},
		{"all on the virtual node", kubectl + `get pods --output=jsonpath="{.items[*].spec.nodeName}"`, `^milan( milan)*$`},
		{"the output of an init container in an emptyDir", kubectl + `exec web -c web -- cat /shared/file`, `made-by-init`},
		{"configMap volume", kubectl + `exec web -c web -- cat /settings/greeting`, `hello-from-configmap`},
		{"secret volume", kubectl + `exec web -c web -- cat /password/password`, `s3cret`},
		{"downward API volume", kubectl + `exec web -c web -- cat /downward/labels`, `app="web"`},
		{"projected volume", kubectl + `exec web -c web -- cat /projected/greeting /projected/password /projected/namespace`, `hello-from-configmaps3cretfeatures`},
		{"projected token", kubectl + `exec web -c web -- wc -c /projected/token`, `[0-9]{3} /projected/token`},
		{"audience of a projected token", kubectl + `exec web -c web -- sh -c "cut -d. -f2 /projected/token | base64 -d 2>/dev/null"`, `"aud":\["elsewhere"\]`},
		{"generic ephemeral volume", kubectl + `exec volumes -- cat /scratch/file; ` + kubectl + `get pvc volumes-scratch --output=jsonpath={.status.phase}`, `kept\nBound`},
		{"emptyDir in memory", kubectl + `exec volumes -- grep /memory /proc/mounts`, `(?m)^tmpfs /memory tmpfs .*size=1024k`},
		{"subPath", kubectl + `exec volumes -- cat /etc/greeting`, `hello-from-configmap`},
		{"subPathExpr", kubectl + `exec volumes -- cat /shared/of-volumes/file`, `mine`},
		{"image volume", kubectl + `exec volumes -- ls /image/bin/workload`, `/image/bin/workload`},
		{"a hostPath is refused by the provider, in an Event", kubectl + `get events --field-selector=involvedObject.name=host-path`, `hostPath`},
		{"a CSI volume needs its driver on the node of the provider", kubectl + `get events --field-selector=involvedObject.name=inline`, `FailedMount.*inline.example.com`},
		{"claim of the virtual storage class", kubectl + `exec writer -- cat /data/file`, `written`},
		{"bound claim", kubectl + `get pvc data --output=jsonpath={.status.phase}`, `Bound`},
		{"environment of fields, ConfigMaps, Secrets and resources", kubectl + `exec web -c web -- sh -c "echo \$NODE \$GREETING \$PASSWORD \$LIMIT"`, `milan-node-1 hello-from-configmap s3cret 67108864`},
		{"user, group, read-only root", kubectl + `exec web -c web -- sh -c "touch /x || id"`, `uid=1000.*2000`},
		{"seccomp profile", kubectl + `exec web -c web -- grep Seccomp: /proc/self/status`, `Seccomp:\s2`},
		{"startup, readiness and liveness probes", kubectl + `get pod unhealthy --output=jsonpath={.status.containerStatuses[0].restartCount}`, `[1-9]`},
		{"Event of a probe", kubectl + `get events --field-selector=involvedObject.name=unhealthy`, `Unhealthy.*Liveness probe failed`},

		{"logs", kubectl + `logs web -c web`, `serving on :8080`},
		{"logs of a sidecar", kubectl + `logs web -c sidecar`, `sidecar up`},
		{"logs --tail --timestamps --since", kubectl + `logs web -c web --tail=1 --timestamps --since=1h`, `^20\d\d-\d\d-\d\dT[^\n]*GET /[^\n]*\n$`},
		{"logs --since-time", `{ ` + kubectl + `logs web -c web --since-time=2099-01-01T00:00:00Z; ` + kubectl + `logs web -c web --since-time=2020-01-01T00:00:00Z; } | grep --count "serving on"`, `^1\n$`},
		{"logs --limit-bytes", kubectl + `logs web -c web --limit-bytes=4`, `^20\d\d$`},
		{"logs --previous", kubectl + `logs unhealthy --previous; ` + kubectl + `logs crashing --previous`, `about to fail`},
		{"logs --follow", kubectl + `logs --follow web -c web | grep --max-count=2 GET`, `(?s)GET /.*GET /`},
		{"logs --all-containers --prefix", kubectl + `logs web --all-containers --prefix`, `(?s)\[pod/web/(sidecar|web)\]`},
		{"exec in a sidecar", kubectl + `exec web -c sidecar -- sh -c "echo in \$HOSTNAME"; ` + kubectl + `exec web -c sidecar -- cat /proc/1/cmdline | tr "\0" " "`, `^in web\nsleep 1000`},
		{"exit code of exec", kubectl + `exec web -c web -- sh -c "exit 7"; echo code $?`, `code 7`},
		{"standard input of exec", `echo abc | ` + kubectl + `exec --stdin client -- cat`, `^abc\n$`},
		{"terminal of exec", `script -qec "` + kubectl + `exec --stdin --tty client -- tty" /dev/null`, `/dev/pts/`},
		{"attach", kubectl + `attach web -c web 2>&1 | grep --max-count=1 GET`, `GET /`},
		{"standard input of attach", `while echo abc; do sleep 1; done | ` + kubectl + `attach echo --stdin --quiet | grep --max-count=1 abc`, `^abc\n$`},
		{"port-forward", forward("pod/web", "34080:8080"), `pod=web`},
		{"cp", `echo copied >` + there + ` && ` + kubectl + `cp ` + there + ` client:/tmp/there; ` + kubectl + `cp client:/tmp/there ` + back + `; cat ` + back, `copied`},
		{"debug", kubectl + `debug web --profile=restricted --image=registry.example.com/web:1 --container=debugger --quiet --attach=false -- sh -c "echo debugged; sleep 30"; ` + kubectl + `logs web -c debugger`, `debugged`},
		{"proxy to a pod", `kubectl get --raw=/api/v1/namespaces/features/pods/web:8080/proxy/`, `pod=web`},
		{"proxy to a Service", `kubectl get --raw=/api/v1/namespaces/features/services/web:80/proxy/`, `pod=web`},

		{"gRPC probes", kubectl + `get pod lively --output=jsonpath="{.status.containerStatuses[?(@.name==\"grpc\")].ready} {.status.containerStatuses[?(@.name==\"grpc\")].restartCount}"`, `^true 0$`},
		{"Event of a gRPC probe", kubectl + `get events --field-selector=involvedObject.name=mute`, `Readiness probe (failed|errored)`},
		{"postStart hook", kubectl + `exec lively -c main -- cat /tmp/started`, `before everything else`},

		{"crash loop", kubectl + `get pod crashing`, `CrashLoopBackOff`},
		{"Event of a crash loop", kubectl + `get events --field-selector=involvedObject.name=crashing`, `BackOff`},
		{"missing image", kubectl + `get pod missing`, `ImagePullBackOff|ErrImagePull`},
		{"Event of a missing image", kubectl + `get events --field-selector=involvedObject.name=missing`, `there-is-none:1: not found`},
		{"private image", kubectl + `wait --for=condition=Ready pod/private --timeout=30s`, `condition met`},
		{"private image by the ServiceAccount", kubectl + `wait --for=condition=Ready pod/private-by-account --timeout=30s`, `condition met`},
		{"private image without a pull secret", kubectl + `get pod denied`, `ImagePullBackOff|ErrImagePull`},
		{"Event of a private image", kubectl + `get events --field-selector=involvedObject.name=denied`, `401 Unauthorized|authorization failed`},
		{"OOM kill", kubectl + `get pod hog --output=jsonpath={.status.containerStatuses[0].state.terminated.reason}`, `OOMKilled`},
		{"Job", kubectl + `get job job --output=jsonpath={.status.succeeded}`, `2`},
		{"logs of a Job", kubectl + `logs job/job`, `job-done`},
		{"StatefulSet", kubectl + `get statefulset db --output=jsonpath={.status.readyReplicas}`, `1`},

		{"Service by its short name", kubectl + `exec client -- workload get http://web/`, `pod=web`},
		{"Service by its full name", kubectl + `exec client -- workload get http://web.features.svc.cluster.local/`, `pod=web`},
		{"headless Service", kubectl + `exec client -- workload get http://db-0.db.features.svc.cluster.local:8080/`, `pod=db-0`},
		{"hairpin", kubectl + `exec web -c web -- workload get http://web.features/`, `pod=web`},
		{"API server from a pod", kubectl + `exec client -- sh -c "SSL_CERT_FILE=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt workload get --token=/var/run/secrets/kubernetes.io/serviceaccount/token ` +
			`https://\$KUBERNETES_SERVICE_HOST:\$KUBERNETES_SERVICE_PORT/api/v1/namespaces/features/pods/missing"`, `"nodeName":\s*"milan"`},
		// The pod trusts only the consumer's CA, so this request fails if it reaches the provider's API server.
		{"discovery of the issuer from a pod", kubectl + `exec client -- sh -c "SSL_CERT_FILE=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt workload get --token=/var/run/secrets/kubernetes.io/serviceaccount/token ` +
			`https://kubernetes.default.svc.cluster.local:\$KUBERNETES_SERVICE_PORT/.well-known/openid-configuration"`, `"issuer":"https://kubernetes.default.svc`},

		{"update of a configMap volume", kubectl + `patch configmap settings --patch="{\"data\":{\"greeting\":\"changed\"}}" >/dev/null; ` + kubectl + `exec web -c web -- cat /settings/greeting`, `changed`},
		{"resize", kubectl + `patch pod web --subresource=resize --patch="{\"spec\":{\"containers\":[{\"name\":\"web\",\"resources\":{\"limits\":{\"cpu\":\"100m\"}}}]}}" >/dev/null; ` +
			kubectl + `get pod web --output=jsonpath="{.status.containerStatuses[?(@.name==\"web\")].resources.limits.cpu}"`, `100m`},
		{"kubectl top of a pod", kubectl + `top pod -l app=busy`, `busy-\S+\s+[1-9]\d*m\s`},
		{"kubectl top of the virtual node", `kubectl top node milan`, `milan\s+[1-9]\d*m\s`},
		{"a HorizontalPodAutoscaler scales up", kubectl + `get deployment busy --output=jsonpath={.status.replicas}`, `2`},
		{"certificate of the virtual kubelet", `kubectl get csr --output=jsonpath="{.items[*].status.conditions[*].message}"`, `Requested by the virtual kubelet of node milan`},
	})
}

// stops checks that the pods of the manifest end in the way their specs require.
func (w *world) stops() {
	w.Helper()
	const kubectl = "kubectl --namespace=features "
	took := func(line string) time.Duration {
		begun := time.Now()
		w.run(line)
		return time.Since(begun)
	}
	require.GreaterOrEqual(w, took(kubectl+"delete pod stubborn --timeout=5m"), 5*time.Second, "terminationGracePeriodSeconds is honoured")
	heard := w.lab.Path("heard")
	require.GreaterOrEqual(w, took(kubectl+"logs --follow lively -c main >"+heard+" & for i in $(seq 600); do grep --quiet serving "+heard+" && break; sleep 0.1; done; "+kubectl+"delete pod lively --timeout=5m; wait"), 4*time.Second, "the preStop hook of sleeper sleeps")
	require.Contains(w, w.run("cat "+heard), "GET /about-to-stop", "the preStop hook of main asks it")
	w.run(kubectl + "delete pod web --timeout=5m")
}

// both checks that a Service with endpoints in both clusters can be reached from each cluster, and that both endpoints
// respond.
func (w *world) both() {
	w.Helper()
	w.run("kubectl create namespace both")
	w.run("refractctl offload namespace both --namespace-mapping-strategy=EnforceSameName")
	w.run("kubectl --namespace=both apply --filename=testdata/both.yaml")
	var checks []check
	for _, from := range []string{"here", "there"} {
		checks = append(checks, check{"a Service with endpoints in both clusters, from " + from, manyTimes(from, "web.both.svc.cluster.local"),
			`(?s)pod=here node=rome-node-1.*pod=there node=milan-node-1`})
	}
	w.verify(checks)
	w.slowLine()
	w.run("refractctl unoffload namespace both")
}

// manyTimes returns a command line that sends repeated requests to a host, from a pod in the namespace both, and prints
// the pods that respond.
func manyTimes(from, host string) string {
	return "kubectl --namespace=both exec " + from + " -- workload get --times=20 http://" + host + "/ | sort -u"
}

// drains drains the provider's node, and then the virtual node. The pods must be recreated. When the provider's node is
// drained, the consumer's pod must stay the same.
func (w *world) drains() {
	w.Helper()
	const kubectl = "kubectl --namespace=features "
	const identity = kubectl + "get pod db-0 --output=jsonpath={.metadata.uid}"
	before := w.run(identity)
	w.run("kubectl --context=milan drain milan-node-1 --pod-selector=app=db --force --timeout=5m")
	w.verify([]check{{"the pod is not ready while its node is drained", kubectl + `get pod db-0 --output=jsonpath="{.status.conditions[?(@.type==\"Ready\")].status}"`, `False`}})
	w.run("kubectl --context=milan uncordon milan-node-1")
	w.verify([]check{
		{"after the drain of its node it runs", kubectl + `wait --for=condition=Ready pod/db-0 --timeout=30s`, `condition met`},
		{"logs again", kubectl + `logs db-0`, `serving on`},
	})
	require.Equal(w, before, w.run(identity), "the pod is the same for this cluster")

	w.run("kubectl drain milan --pod-selector=app=db --force --timeout=5m")
	w.run("kubectl uncordon milan")
	w.verify([]check{{"after the drain of the virtual node the StatefulSet is back", kubectl + `wait --for=condition=Ready pod/db-0 --timeout=30s`, `condition met`}})
	between := w.run(identity)
	require.NotEqual(w, before, between, "the pod was made again")

	w.run("refractctl cordon virtualnode milan")
	w.run(kubectl + "delete pod --selector=app=front --timeout=5m")
	w.verify([]check{
		{"a cordoned virtual node gets no pods", kubectl + `get events --field-selector=reason=FailedScheduling`, `front-\S+.*unschedulable`},
		{"those that it has stay", kubectl + `get pod db-0`, `1/1\s+Running`},
	})
	w.run("refractctl drain virtualnode milan --timeout=5m")
	require.NotContains(w, w.run("kubectl get pods --all-namespaces --output=jsonpath='{.items[*].spec.nodeName}'"), "milan", "all pods have left")
	require.NotContains(w, w.run("kubectl --context=milan --namespace=features get pods --output=name"), "pod/", "there, too")
	w.run("refractctl uncordon virtualnode milan")
	w.verify([]check{
		{"after refractctl uncordon the pods come back", kubectl + `wait --for=condition=Ready pod/db-0 --timeout=30s; ` + kubectl + `rollout status deployment/front --timeout=30s`, `(?s)condition met.*successfully rolled out`},
		{"they are on the virtual node", kubectl + `get pods --selector="app in (db, front)" --output=jsonpath="{.items[*].spec.nodeName}"`, `^milan milan$`},
	})
	require.NotEqual(w, between, w.run(identity), "the pod was made again")
}
