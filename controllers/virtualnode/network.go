// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// rangesReason is the reason of the condition of a VirtualNode whose virtual kubelet is not deployed yet, because the
// ranges of the provider are not granted.
const rangesReason = "WaitingForRanges"

// addressFlags returns the flags with which a virtual kubelet translates addresses: the ranges of the provider, the ranges of
// this cluster by which they are reached, and the pod ranges of this cluster. There are none if the provider has no Configuration. The
// problem is set if the ranges are not granted yet. Without them, the virtual kubelet would show addresses that may belong to pods of
// this cluster.
func (c *Controller) addressFlags(ctx context.Context, v *virtualNode) (flags []string, wrong *problem, err error) {
	if !c.options.TranslatesAddresses {
		return nil, nil, nil
	}
	all := &networking.ConfigurationList{}
	ofProvider := client.MatchingLabels{wire.RemoteClusterIDLabel: v.provider()}
	if err := c.client.List(ctx, all, client.InNamespace(v.Namespace), ofProvider); err != nil {
		return nil, nil, fmt.Errorf("listing the Configurations of namespace %s, %w", v.Namespace, err)
	}
	if len(all.Items) == 0 {
		return nil, nil, nil
	}
	for i := range all.Items {
		if flags := forgeAddressFlags(&all.Items[i]); flags != nil {
			return flags, nil, nil
		}
	}
	const text = "the virtual kubelet waits until all ranges of cluster %s are granted: see the condition %s of Configuration %s/%s"
	first := &all.Items[0]
	return nil, &problem{reason: rangesReason, message: fmt.Sprintf(text, v.provider(), networking.ConfiguredCondition, first.Namespace, first.Name)}, nil
}

// forgeAddressFlags returns the flags for a Configuration, or nil if its ranges are not all granted. Another Configuration of the same
// peer is not used by the network, so it never has granted ranges.
func forgeAddressFlags(configuration *networking.Configuration) (flags []string) {
	condition := meta.FindStatusCondition(configuration.Status.Conditions, networking.ConfiguredCondition)
	isGranted := condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == configuration.Generation
	if !isGranted || configuration.Status.Remote == nil || configuration.Spec.Local == nil {
		return nil
	}
	from, to := configuration.Spec.Remote.CIDR, configuration.Status.Remote.CIDR
	for _, ranges := range []struct {
		flag     string
		from, to []networking.CIDR
	}{{"remote-pod-cidr", from.Pod, to.Pod}, {"remote-external-cidr", from.External, to.External}} {
		if len(ranges.from) != len(ranges.to) {
			return nil
		}
		if len(ranges.from) > 0 {
			flags = append(flags, "--"+ranges.flag+"="+joinRanges(ranges.from), "--"+ranges.flag+"-remap="+joinRanges(ranges.to))
		}
	}
	for _, pods := range configuration.Spec.Local.CIDR.Pod {
		flags = append(flags, "--local-podcidr="+string(pods))
	}
	return flags
}

func joinRanges(ranges []networking.CIDR) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = string(r)
	}
	return strings.Join(texts, ",")
}
