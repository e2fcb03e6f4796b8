// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/refract-project/refract/test/support/nodelab"
	"github.com/refract-project/refract/test/support/testenv/tools"
)

//go:embed app/real.yaml
var realApp embed.FS

// reality is the state of the story on real nodes. It shows command lines that a user could type.
type reality struct {
	*screen
	lab *nodelab.Lab
	// begun is the time at which the two clusters were ready, before Refract was installed.
	begun time.Time
}

// realSteps returns the chapters of the story on real nodes.
func realSteps() []chapter[*reality] {
	return []chapter[*reality]{
		{"Two clusters", "Rome and milan, each a real control plane and a real node (containerd, kubelet, kube-proxy, CoreDNS), on machines made of Linux namespaces. Both have the same pod range and the same Service range, and there is no network between their pods.", (*reality).bringUp},
		{"Install", "One command for each cluster. The images come from a registry, as they would anywhere.", (*reality).install},
		{"Join", "One command makes milan a node of rome, and connects the pods of both through gateways. Each cluster sees the pods of the other one at translated addresses.", (*reality).join},
		{"A web shop", "The front end runs in rome. The back end selects the virtual node, and runs in milan. A request goes to the front end, by its name in the DNS; that asks the back end, by its.", (*reality).shop},
		{"Everyday life", "What kubectl does with pods it does with these, too.", (*reality).everyday},
		{"A Service with two homes", "The back end is scaled up in rome: the Service has endpoints in both clusters.", (*reality).bothHomes},
		{"The line is cut", "Nobody tells either side. The pods in milan go on; rome notices, and keeps what it has promised to do.", (*reality).cut},
		{"Part", "Nothing is left on either side, neither objects nor gateways nor routes.", (*reality).part},
	}
}

func runReal(ctx context.Context, screen *screen) (err error) {
	if err := tools.NodesHere(); err != nil {
		return fmt.Errorf("this demo needs root on Linux, and real nodes to start: %w", err)
	}
	r := &reality{screen: screen}
	defer func() {
		if r.lab != nil {
			err = errors.Join(err, r.lab.Stop())
		}
	}()
	return tell(ctx, screen, r, realSteps())
}

func (r *reality) bringUp(ctx context.Context) error {
	return r.during("two control planes and nodes start, the images are built", func() (err error) {
		r.lab, err = nodelab.Start(ctx, nodelab.Options{Apart: true})
		return err
	})
}

// run runs a command line, and shows the command line and its output.
func (r *reality) run(line string) error {
	out, err := r.lab.Run(line)
	if err != nil {
		return err
	}
	r.shell(line, out)
	return nil
}

// until repeats a command line until its output matches the regular expression want.
func (r *reality) until(ctx context.Context, line, want string) error {
	pattern := regexp.MustCompile(want)
	for {
		out, err := r.lab.Run(line)
		if pattern.MatchString(out) {
			r.shell(line, out)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %q to print %s: it prints %s (%w)", line, want, out, errors.Join(err, context.Cause(ctx)))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (r *reality) lines(lines ...string) error {
	for _, line := range lines {
		if err := r.run(line); err != nil {
			return err
		}
	}
	return nil
}

func (r *reality) install(context.Context) error {
	r.begun = time.Now()
	for _, cluster := range []string{"rome", "milan"} {
		line := fmt.Sprintf("refractctl install --context=%s --cluster-id=%s --registry=registry.example.com/refract --network=gateway", cluster, cluster)
		if err := r.during(line, func() error { _, err := r.lab.Run(line); return err }); err != nil {
			return err
		}
	}
	return nil
}

func (r *reality) join(context.Context) error {
	// There are no load balancers here, and the control planes are no pods in which the pod range could be found.
	err := r.lines("refractctl peer --context=rome --remote-context=milan --cpu=2 --memory=4Gi --gw-server-service-type=NodePort --pod-cidrs=10.244.0.0/16 --remote-pod-cidrs=10.244.0.0/16")
	if err != nil {
		return err
	}
	return r.lines("kubectl get nodes", "refractctl network status")
}

func (r *reality) shop(ctx context.Context) error {
	manifest, err := realApp.ReadFile("app/real.yaml")
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.lab.Path("shop.yaml"), manifest, 0o600); err != nil {
		return err
	}
	r.lab.WorkDir = r.lab.Path("")
	err = r.lines("kubectl create namespace shop", "refractctl offload namespace shop --namespace-mapping-strategy=EnforceSameName",
		"kubectl apply --namespace=shop --filename=shop.yaml", "kubectl --namespace=shop rollout status deployment/back --timeout=60s", "kubectl --namespace=shop get pods --output=wide")
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := r.until(ctx, "kubectl --namespace=shop exec visitor -- workload get http://front.shop.svc.cluster.local/", "pod=front-.*node=rome-node-1.*pod=back-.*node=milan-node-1"); err != nil {
		return err
	}
	r.note("answered %.1f s after the pods were ready, and %.1f s after there were two clusters and nothing else", time.Since(begun).Seconds(), time.Since(r.begun).Seconds())
	return nil
}

func (r *reality) everyday(context.Context) error {
	return r.lines("kubectl --namespace=shop logs deployment/back --tail=2", "kubectl --namespace=shop exec deployment/back -- hostname -i",
		"kubectl --context=milan --namespace=shop get pods")
}

func (r *reality) bothHomes(ctx context.Context) error {
	return errors.Join(
		r.run("kubectl --namespace=shop scale deployment/back-here --replicas=1"),
		r.until(ctx, "for i in $(seq 10); do kubectl --namespace=shop exec visitor -- workload get http://back.shop.svc.cluster.local/; done | sort | uniq -c", `(?s)rome-node-1.*milan-node-1|milan-node-1.*rome-node-1`),
	)
}

func (r *reality) cut(ctx context.Context) error {
	milan := r.lab.Milan.Machines()[0]
	if err := r.lab.Network.Cut(milan); err != nil {
		return err
	}
	r.note("the line of milan is cut")
	err := r.until(ctx, "kubectl get node milan --no-headers", "NotReady")
	if err != nil {
		return err
	}
	if err := r.run("kubectl --namespace=shop delete pod --selector=where=there --wait=false"); err != nil {
		return err
	}
	if err := r.lab.Network.Mend(milan); err != nil {
		return err
	}
	r.note("the line is mended: what was asked for meanwhile is done")
	return errors.Join(
		r.until(ctx, "kubectl get node milan --no-headers", " Ready"),
		r.until(ctx, "kubectl --namespace=shop get pods --selector=where=there --no-headers", `^\S+ +1/1 +Running[^\n]*\n$`),
		r.until(ctx, "kubectl --context=milan --namespace=shop get pods --no-headers", `^\S+ +1/1 +Running[^\n]*\n$`),
	)
}

func (r *reality) part(context.Context) error {
	if err := r.lines("refractctl unoffload namespace shop", "kubectl delete namespace shop"); err != nil {
		return err
	}
	out, err := r.lab.Run("refractctl unpeer --context=rome --remote-context=milan")
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	r.shell("refractctl unpeer --context=rome --remote-context=milan", lines[len(lines)-1])
	return r.lines("refractctl uninstall --context=rome", "refractctl uninstall --context=milan", "kubectl --context=milan get namespaces")
}
