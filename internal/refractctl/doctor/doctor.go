// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor diagnoses an installation of Refract and reports findings with remedies. The package does not change
// anything.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/credentials"
	"github.com/refract-project/refract/internal/folderplugins"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/coverage"
	"github.com/refract-project/refract/internal/refractctl/release"
	"github.com/refract-project/refract/internal/serverversion"
)

// Level is the severity of a finding.
type Level string

// The levels, from the least to the most severe.
const (
	OK      Level = "OK"
	Warning Level = "Warning"
	Error   Level = "Error"
)

// Finding is the result of one check.
type Finding struct {
	// Subject is the checked object, such as "node milan".
	Subject string `json:"subject"`
	Level   Level  `json:"level"`
	// Message describes the finding. Unless the level is OK, it contains the remedy.
	Message string `json:"message"`
}

// Examination examines one cluster.
type Examination struct {
	Client client.Client
	// Now is the time of the examination. It determines which certificates have expired.
	Now time.Time
	// Cluster is the examined cluster, for checks that need more than a client. If it is nil, the checks of the clock,
	// of the user's permissions, of the peer, and of the API server's connections to virtual kubelets are skipped.
	Cluster *cluster.Cluster
	// Peer is a peered cluster, or nil. If it is set, both clusters are compared.
	Peer *cluster.Cluster

	found []Finding
}

// Examine runs all checks. If a check cannot be run, this is a finding, and all other checks are still run. If no
// installation can be found, this is the only finding.
func (p *Examination) Examine(ctx context.Context) []Finding {
	p.found = nil
	installed, err := release.Find(ctx, p.Client)
	if err != nil {
		p.addFinding("installation", Error, "%s", notFound(err))
		return p.found
	}
	p.addFinding("installation", OK, "release %s in namespace %s, version %s, cluster id %s", installed.Name, installed.Namespace, installed.Version, installed.ClusterID)
	for _, check := range []struct {
		subject string
		run     func(context.Context, *release.Installation) error
	}{
		{"version", p.checkVersion}, {"clock", p.checkClock}, {"your permissions", p.userRights}, {"permissions of the controller manager", p.managerRights},
		{"CRDs", p.checkDefinitions}, {"Deployments", p.checkDeployments}, {"image pull secrets", p.pullSecrets}, {"webhook", p.checkWebhook}, {"ForeignClusters", p.checkClusters},
		{"PeerNetworks", p.checkNetworks}, {"gateways", p.checkGateways},
		{"virtual nodes", p.checkVirtualNodes},
		{"declared plugins", p.checkDeclaredPlugins}, {"offloaded namespaces", p.checkNamespaces},
		{"pods of virtual nodes", p.checkWaitingPods}, {"Quotas", p.checkQuotas}, {"peer", p.checkPeer},
	} {
		if err := check.run(ctx, installed); err != nil {
			p.addFinding(check.subject, Error, "cannot be examined: %s", describeReadError(err))
		}
	}
	return p.found
}

// notFound describes an error of release.Find, with the remedy.
func notFound(err error) string {
	switch {
	case errors.Is(err, release.ErrNotInstalled):
		return err.Error() + ": install it with refractctl install"
	case errors.Is(err, release.ErrSeveral):
		return err.Error()
	}
	return "whether Refract is installed is unknown: " + describeReadError(err)
}

// describeReadError describes an error from the API server, with the remedy.
func describeReadError(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return err.Error() + ": use the credentials of an administrator"
	case apierrors.IsUnauthorized(err):
		return "the API server rejects your credentials, " + err.Error() + ": renew those of the kubeconfig"
	case cmdutil.Away(err):
		return "the API server does not answer, " + err.Error() + ": check that it runs, and the context and the server of the kubeconfig"
	}
	return err.Error()
}

func (p *Examination) addFinding(subject string, level Level, format string, arguments ...any) {
	p.found = append(p.found, Finding{Subject: subject, Level: level, Message: fmt.Sprintf(format, arguments...)})
}

// checkDeployments checks the controller manager and the virtual kubelets.
func (p *Examination) checkDeployments(ctx context.Context, installed *release.Installation) error {
	managers, kubelets := &appsv1.DeploymentList{}, &appsv1.DeploymentList{}
	err := errors.Join(
		p.Client.List(ctx, managers, client.InNamespace(installed.Namespace), client.MatchingLabels{release.InstanceLabel: installed.Name}),
		p.Client.List(ctx, kubelets, client.MatchingLabels{wire.ComponentLabel: wire.VirtualKubeletComponent}))
	if err != nil {
		return err
	}
	for _, d := range append(managers.Items, kubelets.Items...) {
		subject := "Deployment " + client.ObjectKeyFromObject(&d).String()
		missing, err := release.Unavailable(ctx, p.Client, client.ObjectKeyFromObject(&d))
		switch {
		case err != nil:
			return err
		case missing == "":
			p.addFinding(subject, OK, "available")
		case p.isStarting(&d):
			p.addFinding(subject, Warning, "%s; the rollout is in progress, check again in a minute", missing)
		case d.Status.AvailableReplicas > 0:
			p.addFinding(subject, Warning, "%s; see its pods with kubectl -n %s describe pods", missing, d.Namespace)
		default:
			p.addFinding(subject, Error, "%s; see its pods with kubectl -n %s describe pods", missing, d.Namespace)
		}
	}
	return nil
}

// startGrace is how long replicas may take to start before their absence is an error.
const startGrace = time.Minute

// isStarting reports whether a rollout has begun or made progress within the last minute.
func (p *Examination) isStarting(d *appsv1.Deployment) bool {
	for _, condition := range d.Status.Conditions {
		if condition.Type == appsv1.DeploymentProgressing {
			// After the rollout is complete, a healthy Deployment keeps the reason NewReplicaSetAvailable.
			return condition.Status == corev1.ConditionTrue && condition.Reason != "NewReplicaSetAvailable" &&
				p.Now.Sub(condition.LastUpdateTime.Time) < startGrace
		}
	}
	return false
}

func (p *Examination) checkClusters(ctx context.Context, _ *release.Installation) error {
	clusters := &core.ForeignClusterList{}
	if err := p.Client.List(ctx, clusters); err != nil {
		return err
	}
	for i := range clusters.Items {
		p.checkCluster("ForeignCluster "+clusters.Items[i].Name, &clusters.Items[i])
	}
	return nil
}

func (p *Examination) checkCluster(subject string, cluster *core.ForeignCluster) {
	healthy := true
	for _, condition := range cluster.Status.Conditions {
		switch condition.Status {
		case core.ConditionStatusError:
			p.addFinding(subject, Error, "%s is %s: %s; %s", condition.Type, condition.Reason, condition.Message, clusterRemedy(cluster, condition.Type))
			healthy = false
		case core.ConditionStatusPending:
			p.addFinding(subject, Warning, "%s is %s: %s; %s", condition.Type, condition.Reason, condition.Message, clusterRemedy(cluster, condition.Type))
			healthy = false
		}
	}
	switch {
	case !healthy:
	case core.ConditionOf(cluster.Status.Conditions, core.APIServerStatusCondition) == core.ConditionStatusEstablished:
		p.addFinding(subject, OK, "%s, reachable", cluster.Status.Role)
	default:
		p.addFinding(subject, Warning, "its API server is not checked: no heartbeat has arrived, and there is no kubeconfig for it. Check with refractctl doctor there that its virtual kubelet runs; if the peering is over, remove the rest of it with refractctl unpeer or refractctl delete peering-user %s", cluster.Spec.ClusterID)
	}
}

// clusterRemedy returns the remedy for a condition of a ForeignCluster.
func clusterRemedy(cluster *core.ForeignCluster, condition core.ConditionType) string {
	id, tenant := string(cluster.Spec.ClusterID), cmp.Or(cluster.Status.TenantNamespace.Local, wire.TenantNamespace(string(cluster.Spec.ClusterID)))
	switch name := string(condition); {
	case condition == core.APIServerStatusCondition && cluster.Status.Role == core.ConsumerRole:
		return "run refractctl doctor in cluster " + id + "; if it is gone for good, revoke its access with refractctl delete peering-user " + id
	case condition == core.APIServerStatusCondition:
		return fmt.Sprintf("check that cluster %s runs, and that the pods of this cluster reach %s; if it is gone for good, run refractctl unpeer %s --force", id, cmp.Or(cluster.Status.APIServerURL, "its API server"), id)
	case strings.HasPrefix(name, "Network"):
		return fmt.Sprintf("see kubectl -n %s get peernetworks, or the gateway of the network, and try it with refractctl network test", tenant)
	case strings.HasPrefix(name, "Auth"):
		return fmt.Sprintf("see kubectl -n %s describe tenants.authentication.liqo.io,resourceslices.authentication.liqo.io", tenant)
	case strings.HasPrefix(name, "Offloading"):
		return fmt.Sprintf("see kubectl -n %s describe virtualnodes", tenant)
	}
	return "see kubectl describe foreigncluster " + cluster.Name
}

func (p *Examination) checkVirtualNodes(ctx context.Context, installed *release.Installation) error {
	nodes := &offloading.VirtualNodeList{}
	if err := p.Client.List(ctx, nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		vn := &nodes.Items[i]
		p.checkVirtualNode(vn)
		if err := p.nodeOf(ctx, vn); err != nil {
			return err
		}
		if err := p.kubeletRights(ctx, vn, installed); err != nil {
			return err
		}
		if err := p.checkCredentials(ctx, vn, installed); err != nil {
			return err
		}
	}
	return nil
}

func (p *Examination) checkVirtualNode(vn *offloading.VirtualNode) {
	subject, healthy := "VirtualNode "+client.ObjectKeyFromObject(vn).String(), true
	for _, condition := range vn.Status.Conditions {
		if condition.Status != offloading.RunningConditionStatus && condition.Message != "" {
			p.addFinding(subject, Warning, "%s is %s: %s; %s", condition.Type, condition.Reason, condition.Message, nodeRemedy(vn, &condition))
			healthy = false
		}
	}
	if healthy {
		p.addFinding(subject, OK, "provider %s", vn.Spec.ClusterID)
	}
}

// nodeRemedy returns the remedy for a condition of a VirtualNode.
func nodeRemedy(vn *offloading.VirtualNode, condition *offloading.VirtualNodeCondition) string {
	switch {
	case condition.Status == offloading.DrainingConditionStatus && vn.DeletionTimestamp == nil && ptr.Deref(vn.Spec.CreateNode, true):
		return "wait until it is drained, or stop that with refractctl uncordon virtualnode " + vn.Name
	case condition.Status == offloading.DrainingConditionStatus && vn.DeletionTimestamp == nil:
		return "wait until it is drained"
	case condition.Status == offloading.DeletingConditionStatus || condition.Status == offloading.DrainingConditionStatus:
		return fmt.Sprintf("wait until it is deleted, or see what it waits for with kubectl -n %s describe virtualnode %s", vn.Namespace, vn.Name)
	case condition.Type == offloading.VirtualKubeletConditionType && condition.Status == offloading.CreatingConditionStatus:
		return fmt.Sprintf("see its pods with kubectl -n %s describe deployment,pods -l %s=%s", vn.Namespace, wire.VirtualNodeLabel, vn.Name)
	}
	return fmt.Sprintf("see its Events with kubectl -n %s describe virtualnode %s", vn.Namespace, vn.Name)
}

func (p *Examination) nodeOf(ctx context.Context, vn *offloading.VirtualNode) error {
	if vn.Spec.CreateNode != nil && !*vn.Spec.CreateNode {
		return nil
	}
	node := &corev1.Node{}
	err := p.Client.Get(ctx, client.ObjectKey{Name: vn.Name}, node)
	if apierrors.IsNotFound(err) {
		p.checkNode(vn, nil)
		return nil
	}
	if err != nil {
		return err
	}
	p.checkNode(vn, node)
	return p.servingCertificate(ctx, vn, node)
}

// checkNode checks the Node of a virtual node. node is nil if the Node does not exist.
func (p *Examination) checkNode(vn *offloading.VirtualNode, node *corev1.Node) {
	if node == nil {
		p.addFinding("node "+vn.Name, Error, "it is not registered: see the Events with kubectl -n %s describe virtualnode %s", vn.Namespace, vn.Name)
		return
	}
	switch _, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); {
	case ready == nil || ready.Status == corev1.ConditionUnknown:
		p.addFinding("node "+vn.Name, Error, "its virtual kubelet stopped reporting: see kubectl -n %s logs deployment/vk-%s", vn.Namespace, vn.Name)
	case ready.Status != corev1.ConditionTrue:
		p.addFinding("node "+vn.Name, Error, "not ready: %s, %s; %s", ready.Reason, ready.Message, readyRemedy(vn, node))
	case node.Spec.Unschedulable:
		p.addFinding("node "+vn.Name, Warning, "ready, but cordoned: make it schedulable again with refractctl uncordon virtualnode %s", vn.Name)
	default:
		p.addFinding("node "+vn.Name, OK, "ready")
	}
	p.checkFolderPlugins(node)
	p.providerVersion(node)
}

// checkFolderPlugins reports plugins that are in the plugin folder of a virtual kubelet but are not loaded.
func (p *Examination) checkFolderPlugins(node *corev1.Node) {
	_, condition := nodeutil.GetNodeCondition(&node.Status, folderplugins.ConditionType)
	if condition == nil || condition.Status == corev1.ConditionTrue {
		return
	}
	level := Warning
	if condition.Reason == folderplugins.HeldReason {
		level = Error
	}
	p.addFinding("node "+node.Name, level, "the folder of its virtual kubelet has plugins that do not load. %s", condition.Message)
}

// providerVersion compares the Kubernetes versions of provider and consumer. The kubelet version of a virtual node is
// the version of the consumer, which is this cluster.
func (p *Examination) providerVersion(node *corev1.Node) {
	provider, own := node.Labels[wire.ProviderVersionLabel], node.Status.NodeInfo.KubeletVersion
	older, known := serverversion.IsOlder(provider, own)
	switch {
	case !known:
	case older:
		p.addFinding("node "+node.Name, Warning, "the provider runs Kubernetes %s, this cluster %s: the provider drops fields of pods and other objects that its version does not have. "+
			"Pods that would run differently without them are not created, see the Events of the pods, and docs/compatibility.md, Older providers; upgrade the provider", provider, own)
	default:
		p.addFinding("node "+node.Name, OK, "the provider runs Kubernetes %s", provider)
	}
}

// readyRemedy returns the remedy for a node that is not ready, derived from its other conditions.
func readyRemedy(vn *offloading.VirtualNode, node *corev1.Node) string {
	is := func(kind corev1.NodeConditionType) bool {
		_, condition := nodeutil.GetNodeCondition(&node.Status, kind)
		return condition != nil && condition.Status == corev1.ConditionTrue
	}
	switch {
	case is(corev1.NodeMemoryPressure) || is(corev1.NodePIDPressure) || is(corev1.NodeDiskPressure):
		return fmt.Sprintf("set cpu and memory in spec.resourceQuota.hard of VirtualNode %s/%s, or run refractctl peer with --cpu and --memory", vn.Namespace, vn.Name)
	case is(corev1.NodeNetworkUnavailable):
		return "connect the pod networks of the clusters and try them with refractctl network test, or run refractctl peer with --network=none"
	}
	return fmt.Sprintf("check that the API server of cluster %s answers, with refractctl info %s, and see kubectl -n %s logs deployment/vk-%s", vn.Spec.ClusterID, vn.Spec.ClusterID, vn.Namespace, vn.Name)
}

// checkCredentials checks the credentials that this cluster uses for a provider.
func (p *Examination) checkCredentials(ctx context.Context, vn *offloading.VirtualNode, installed *release.Installation) error {
	if vn.Spec.KubeconfigSecretRef == nil {
		return nil
	}
	key := client.ObjectKey{Namespace: vn.Namespace, Name: vn.Spec.KubeconfigSecretRef.Name}
	secret := &corev1.Secret{}
	err := p.Client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		secret, err = nil, nil
	}
	if err != nil {
		return err
	}
	config := p.checkAccess(vn, key, secret)
	if config == nil {
		return nil
	}
	return p.remoteRights(ctx, vn, installed, &provider{
		subject: "Secret " + key.String(), config: config, tenant: cmp.Or(secret.Annotations[wire.RemoteTenantNamespaceAnnotation], wire.TenantNamespace(installed.ClusterID)),
	})
}

// shownTimePeriod is the remaining lifetime of credentials below which the time of their expiry is shown in addition to
// the date.
const shownTimePeriod = 2 * 24 * time.Hour

// checkAccess checks the kubeconfig in a Secret. secret is nil if the Secret does not exist. checkAccess returns nil
// if the kubeconfig cannot be used.
func (p *Examination) checkAccess(vn *offloading.VirtualNode, key client.ObjectKey, secret *corev1.Secret) *rest.Config {
	if secret == nil {
		p.addFinding("Secret "+key.String(), Error, "it is missing: it holds the kubeconfig of cluster %s, recreate it with refractctl peer", vn.Spec.ClusterID)
		return nil
	}
	config, err := connection.Parse(secret.Data[wire.KubeconfigSecretKey])
	if err != nil {
		p.addFinding("Secret "+key.String(), Error, "data.%s cannot be read as a kubeconfig, %v: recreate it with refractctl peer", wire.KubeconfigSecretKey, err)
		return nil
	}
	validity := credentials.ValidityOf(config)
	until := validity.Until.UTC().Format(time.DateOnly)
	if validity.Life() < shownTimePeriod {
		until = validity.Until.UTC().Format(time.RFC3339)
	}
	renewal := renewalOf(vn, secret, config)
	switch left := validity.Until.Sub(p.Now); {
	case !validity.Known():
		p.addFinding("Secret "+key.String(), OK, "valid for cluster %s, expiry unknown", vn.Spec.ClusterID)
	case left <= 0:
		p.addFinding("Secret "+key.String(), Error, "the credentials in it have expired on %s: renew them with refractctl peer%s", until, renewal.remedy)
		return nil
	case left < validity.Life()/3:
		p.addFinding("Secret "+key.String(), Warning, "the credentials in it expire on %s: renew them with refractctl peer%s", until, renewal.remedy)
	default:
		p.addFinding("Secret "+key.String(), OK, "valid for cluster %s until %s%s", vn.Spec.ClusterID, until, renewal.outlook)
	}
	return config
}

func (p *Examination) checkNamespaces(ctx context.Context, _ *release.Installation) error {
	extended := &offloading.NamespaceOffloadingList{}
	if err := p.Client.List(ctx, extended); err != nil {
		return err
	}
	notes := sets.New[string]()
	for i := range extended.Items {
		p.checkNamespace(&extended.Items[i])
		covered, err := coverage.Of(ctx, p.Client, extended.Items[i].Namespace)
		if err != nil {
			return err
		}
		for _, gap := range covered.Gaps {
			p.addFinding("namespace "+extended.Items[i].Namespace, Warning, "%s", gap)
		}
		notes.Insert(covered.Notes...)
	}
	for _, note := range sets.List(notes) {
		p.addFinding("offloaded namespaces", OK, "%s", note)
	}
	return nil
}

func (p *Examination) checkNamespace(nso *offloading.NamespaceOffloading) {
	subject := "namespace " + nso.Namespace
	switch phase := nso.Status.OffloadingPhase; phase {
	case offloading.ReadyOffloadingPhaseType:
		p.addFinding(subject, OK, "offloaded as %s", nso.Status.RemoteNamespaceName)
	case offloading.AllFailedOffloadingPhaseType:
		p.addFinding(subject, Error, "not offloaded: see kubectl -n %s describe namespaceoffloading %s", nso.Namespace, nso.Name)
	default:
		p.addFinding(subject, Warning, "its phase is %q: see kubectl -n %s describe namespaceoffloading %s", phase, nso.Namespace, nso.Name)
	}
}
