// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package servingcertificate approves the serving certificates of virtual kubelets for logs, exec, attach and
// port-forward.
//
// A virtual kubelet requests a certificate in the same way as a kubelet: with a CertificateSigningRequest for the
// signer kubernetes.io/kubelet-serving. The signer signs approved requests, and the API server accepts the holder of
// the certificate as a node. Therefore a request is approved only if it comes from the service account of a virtual
// node, and contains only the name of this node and addresses of pods that run as this account. A request for the name
// or an address of a real node is never approved. Other requests are not denied, but left to other approvers.
package servingcertificate

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// Options are the settings of the controller.
type Options struct {
	// Enabled determines whether the controller is started.
	Enabled bool
	// Clock returns the time.
	Clock clock.PassiveClock
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller approves CertificateSigningRequests of virtual kubelets.
type Controller struct {
	client   client.Client
	live     client.Reader
	recorder events.EventRecorder
	options  Options
}

// NewController returns a controller that uses the client c; live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	return &Controller{client: c, live: live, recorder: recorder, options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "servingcertificate" }

const (
	approvedReason    = "ApprovedServingCertificate"
	notApprovedReason = "ServingCertificateNotApproved"
	approveAction     = "Approve"
)

// Reconcile approves a virtual kubelet's request if it contains only permitted names and addresses.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := c.client.Get(ctx, request.NamespacedName, csr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !isOpen(csr) {
		return reconcile.Result{}, nil
	}
	namespace, account, _ := serviceaccount.SplitUsername(csr.Spec.Username)
	vn := &offloading.VirtualNode{}
	// The service account has the name of its virtual node.
	if err := c.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: account}, vn); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	addresses, err := c.podAddresses(ctx, vn)
	if err != nil {
		return reconcile.Result{}, err
	}
	nodes, err := c.realNodes(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	err = verifyRequest(csr, vn.Name, addresses, nodes)
	if errors.Is(err, errAddress) && c.options.Clock.Since(csr.CreationTimestamp.Time) < addressTimeout {
		return reconcile.Result{RequeueAfter: addressRetryInterval}, nil
	}
	if err != nil {
		c.recorder.Eventf(vn, csr, corev1.EventTypeWarning, notApprovedReason, approveAction,
			"CertificateSigningRequest %s was not approved: %s. If the request is legitimate, run kubectl certificate approve %s", csr.Name, err, csr.Name)
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, c.approveRequest(ctx, csr, vn)
}

// realNodes returns the nodes that are not virtual. A request for the name or an address of a real node is never
// approved. Otherwise a user who may create a VirtualNode and pods in one namespace could impersonate a real node.
func (c *Controller) realNodes(ctx context.Context) ([]corev1.Node, error) {
	nodes := &corev1.NodeList{}
	if err := c.live.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("listing nodes, %w", err)
	}
	return slices.DeleteFunc(nodes.Items, func(node corev1.Node) bool { return node.Labels[wire.TypeLabel] == wire.VirtualNodeType }), nil
}

// podAddresses returns the addresses of the virtual kubelet's pods that run as the virtual node's service account. Pods
// on the host network are excluded.
func (c *Controller) podAddresses(ctx context.Context, vn *offloading.VirtualNode) ([]string, error) {
	pods := &corev1.PodList{}
	err := c.live.List(ctx, pods, client.InNamespace(vn.Namespace), client.MatchingLabels{wire.ComponentLabel: wire.VirtualKubeletComponent, wire.VirtualNodeLabel: vn.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of VirtualNode %s, %w", client.ObjectKeyFromObject(vn), err)
	}
	var addresses []string
	for i := range pods.Items {
		if pods.Items[i].Spec.ServiceAccountName != vn.Name || pods.Items[i].Spec.HostNetwork {
			continue
		}
		for _, ip := range pods.Items[i].Status.PodIPs {
			addresses = append(addresses, ip.IP)
		}
	}
	return addresses, nil
}

const (
	// addressTimeout is how long to wait for the address of a pod to appear in its status. A pod can use its address
	// a moment earlier.
	addressTimeout = 30 * time.Second
	// addressRetryInterval is how often the pod is read while its address is awaited.
	addressRetryInterval = time.Second
)

var errAddress = errors.New("it requests an address that no pod of the virtual kubelet has")

// usages are the usages of a kubelet's serving certificate. RSA keys also need key encipherment.
var usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth}

// verifyRequest returns an error if a request contains more than the virtual kubelet may request. Permitted are the
// name of the virtual node, unless a real node has the same name, and the addresses of its pods, unless a real node has
// the same address.
func verifyRequest(csr *certificatesv1.CertificateSigningRequest, node string, addresses []string, realNodes []corev1.Node) error {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil {
		return errors.New("it is not in PEM format")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return fmt.Errorf("it cannot be read, %w", err)
	}
	if want := "system:node:" + node; request.Subject.CommonName != want || !slices.Equal(request.Subject.Organization, []string{"system:nodes"}) {
		return fmt.Errorf("its subject is %s, not that of node %s", request.Subject, node)
	}
	if slices.ContainsFunc(realNodes, func(other corev1.Node) bool { return other.Name == node }) {
		return fmt.Errorf("node %s is not a virtual node: rename the VirtualNode", node)
	}
	for _, usage := range csr.Spec.Usages {
		if !slices.Contains(usages, usage) {
			return fmt.Errorf("it requests the usage %q", usage)
		}
	}
	if len(request.DNSNames)+len(request.EmailAddresses)+len(request.URIs) > 0 {
		return errors.New("it requests DNS names, e-mail addresses or URIs; only IP addresses are allowed")
	}
	if len(request.IPAddresses) == 0 {
		return errors.New("it requests no IP address")
	}
	for _, ip := range request.IPAddresses {
		if owner := ownerOf(ip, realNodes); owner != "" {
			return fmt.Errorf("it requests address %s, which node %s has", ip, owner)
		}
		if !slices.ContainsFunc(addresses, func(address string) bool { return ip.Equal(net.ParseIP(address)) }) {
			return fmt.Errorf("%w: %s", errAddress, ip)
		}
	}
	return nil
}

// ownerOf returns the name of the node with the given address, or an empty string if no node has it.
func ownerOf(ip net.IP, nodes []corev1.Node) string {
	for i := range nodes {
		for _, address := range nodes[i].Status.Addresses {
			if ip.Equal(net.ParseIP(address.Address)) {
				return nodes[i].Name
			}
		}
	}
	return ""
}

func (c *Controller) approveRequest(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, vn *offloading.VirtualNode) error {
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "VirtualKubelet",
		Message: fmt.Sprintf("Requested by the virtual kubelet of node %s", vn.Name), LastUpdateTime: metav1.Now(),
	})
	err := c.client.SubResource("approval").Update(ctx, csr)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// The request has changed, so that it is reconciled again, or it no longer exists.
		return nil
	}
	if err != nil {
		return fmt.Errorf("approving CertificateSigningRequest %s, %w", csr.Name, err)
	}
	log.FromContext(ctx).Info("Approved the serving certificate of a virtual kubelet", "node", vn.Name, "request", csr.Name)
	c.recorder.Eventf(vn, csr, corev1.EventTypeNormal, approvedReason, approveAction, "Approved the serving certificate of the virtual kubelet, CertificateSigningRequest %s", csr.Name)
	return nil
}

// isOpen reports whether a request may come from a virtual kubelet and is neither approved nor denied yet.
func isOpen(object client.Object) bool {
	csr, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok || csr.Spec.SignerName != certificatesv1.KubeletServingSignerName || len(csr.Status.Certificate) > 0 {
		return false
	}
	_, _, err := serviceaccount.SplitUsername(csr.Spec.Username)
	return err == nil && !slices.ContainsFunc(csr.Status.Conditions,
		func(condition certificatesv1.CertificateSigningRequestCondition) bool {
			return condition.Type == certificatesv1.CertificateApproved || condition.Type == certificatesv1.CertificateDenied
		})
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &certificatesv1.CertificateSigningRequestList{}, isOpen
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		Watches(&certificatesv1.CertificateSigningRequest{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.NewPredicateFuncs(isOpen))).
		Complete(report.Failures(c, c.options.Failed))
}
