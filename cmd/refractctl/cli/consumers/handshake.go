// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package consumers

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// The commands in this file join two clusters by Liqo's protocol, without access to both: the administrators exchange
// what the commands print.

// handshakeTimeout limits how long the controllers may take to answer. They normally take less than a second.
const handshakeTimeout = time.Minute

// handshake is a command about one peer.
type handshake struct {
	peer    string
	timeout time.Duration
}

// newHandshakeCommand returns a command that calls do with the installation of Refract in this cluster.
func newHandshakeCommand(access *invocation.Access, peer string, command *cobra.Command, do func(ctx context.Context, cmd *cobra.Command, c client.Client, of *release.Installation, h *handshake) error) *cobra.Command {
	h := &handshake{}
	command.Args = cobra.NoArgs
	command.RunE = invocation.ExplainErrors(func(cmd *cobra.Command, _ []string) error {
		c, err := access.NewClient(invocation.RequestTimeout)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), h.timeout)
		defer cancel()
		installation, err := release.Find(ctx, c)
		if err != nil {
			return err
		}
		return do(ctx, cmd, c, installation, h)
	})
	command.Flags().StringVar(&h.peer, "remote-cluster-id", "", "cluster id of the "+peer)
	command.Flags().DurationVar(&h.timeout, "timeout", handshakeTimeout, "how long to wait")
	_ = command.MarkFlagRequired("remote-cluster-id")
	invocation.CompleteFlagBy(command, "remote-cluster-id", access.CompletePeers)
	return command
}

// NewCreateNonceCommand returns the command "create nonce".
func NewCreateNonceCommand(access *invocation.Access) *cobra.Command {
	return newHandshakeCommand(access, "consumer", &cobra.Command{
		Use:   "nonce",
		Short: "Create the nonce that a consumer signs to join by Liqo's protocol",
		Long: "Create the nonce that a consumer has to sign, in its tenant namespace in this cluster, which is created if it is missing. Give the\n" +
			"consumer what refractctl get nonce prints. Requires authentication.enabled in the values of this cluster.",
		Example: "  refractctl create nonce --context=milan --remote-cluster-id=rome",
	}, func(ctx context.Context, cmd *cobra.Command, c client.Client, _ *release.Installation, h *handshake) error {
		if err := ensureTenantNamespace(ctx, c, h.peer); err != nil {
			return err
		}
		secret := h.newSecret(wire.NonceSecret, wire.NonceLabel, nil)
		if err := c.Create(ctx, secret); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("creating Secret %s, %w", client.ObjectKeyFromObject(secret), err)
		}
		invocation.ResultOf(cmd).AddObject("", "Secret", secret.Namespace, secret.Name)
		_, err := h.awaitKey(ctx, cmd, c, secret, wire.NonceKey, "authentication.enabled")
		return err
	})
}

// NewGetNonceCommand returns the command "get nonce".
func NewGetNonceCommand(access *invocation.Access) *cobra.Command {
	return newHandshakeCommand(access, "consumer", &cobra.Command{
		Use:     "nonce",
		Short:   "Print the nonce of a consumer",
		Example: "  refractctl get nonce --context=milan --remote-cluster-id=rome",
	}, func(ctx context.Context, cmd *cobra.Command, c client.Client, _ *release.Installation, h *handshake) error {
		secret := h.newSecret(wire.NonceSecret, wire.NonceLabel, nil)
		err := c.Get(ctx, client.ObjectKeyFromObject(secret), secret)
		if err != nil || len(secret.Data[wire.NonceKey]) == 0 {
			if err == nil || apierrors.IsNotFound(err) {
				return fmt.Errorf("cluster %s has no nonce here: run refractctl create nonce --remote-cluster-id=%s", h.peer, h.peer)
			}
			return fmt.Errorf("getting Secret %s, %w", client.ObjectKeyFromObject(secret), err)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), string(secret.Data[wire.NonceKey]))
		return err
	})
}

// NewGenerateTenantCommand returns the command "generate tenant".
func NewGenerateTenantCommand(access *invocation.Access) *cobra.Command {
	var nonce, namespace string
	command := newHandshakeCommand(access, "provider", &cobra.Command{
		Use:   "tenant",
		Short: "Print the Tenant with which this cluster joins a provider by Liqo's protocol",
		Long: "Have the nonce of a provider signed with the key of this cluster, and print a Tenant, which an administrator of the provider applies\n" +
			"there. It contains no secret. Requires authentication.joinProviders in the values of this cluster.",
		Example: "  refractctl generate tenant --context=rome --remote-cluster-id=milan --nonce=NONCE > tenant.yaml\n" +
			"  kubectl apply --context=milan --filename=tenant.yaml   # in the other cluster",
	}, func(ctx context.Context, cmd *cobra.Command, c client.Client, of *release.Installation, h *handshake) error {
		if err := ensureTenantNamespace(ctx, c, h.peer); err != nil {
			return err
		}
		signature, err := h.signNonce(ctx, cmd, c, nonce)
		if err != nil {
			return err
		}
		keys := &corev1.Secret{}
		name := client.ObjectKey{Namespace: of.Namespace, Name: wire.ClusterKeySecret}
		if err := c.Get(ctx, name, keys); err != nil {
			return fmt.Errorf("getting Secret %s with the key of this cluster, %w", name, err)
		}
		key, err := clientcert.ParsePrivateKey(keys.Data[wire.PrivateKeyField])
		if err != nil {
			return fmt.Errorf("the key %s of Secret %s cannot be used: %w", wire.PrivateKeyField, name, err)
		}
		csr, err := clientcert.New(clientcert.Subject{CommonName: of.ClusterID, Organization: wire.ControlPlaneGroup}, key)
		if err != nil {
			return err
		}
		if namespace == "" {
			namespace = wire.TenantNamespace(of.ClusterID)
		}
		return printManifest(cmd, &auth.Tenant{
			TypeMeta:   metav1.TypeMeta{APIVersion: auth.GroupVersion.String(), Kind: auth.TenantKind},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: of.ClusterID, Labels: map[string]string{wire.RemoteClusterIDLabel: of.ClusterID}},
			Spec:       auth.TenantSpec{ClusterID: core.ClusterID(of.ClusterID), PublicKey: keys.Data[wire.PublicKeyField], CSR: csr, Signature: signature},
		})
	})
	command.Flags().StringVar(&nonce, "nonce", "", "nonce of the provider, which refractctl get nonce prints there (default: the nonce signed last)")
	command.Flags().StringVar(&namespace, "remote-tenant-namespace", "", "namespace of the Tenant on the provider (default liqo-tenant-ID)")
	return command
}

// NewGenerateIdentityCommand returns the command "generate identity".
func NewGenerateIdentityCommand(access *invocation.Access) *cobra.Command {
	var namespace string
	command := newHandshakeCommand(access, "consumer", &cobra.Command{
		Use:   "identity",
		Short: "Print the Identity with which a consumer accesses this cluster by Liqo's protocol",
		Long: "Print the Identity of a consumer whose Tenant was applied in this cluster. An administrator of the consumer applies it there. It contains\n" +
			"a certificate, but not its private key.",
		Example: "  refractctl generate identity --context=milan --remote-cluster-id=rome > identity.yaml\n" +
			"  kubectl apply --context=rome --filename=identity.yaml   # in the other cluster",
	}, func(ctx context.Context, cmd *cobra.Command, c client.Client, of *release.Installation, h *handshake) error {
		var admitted *auth.Tenant
		if err := invocation.AwaitOne(ctx, cmd.ErrOrStderr(), "tenant", h.peer, h.timeout, func(ctx context.Context) (bool, string, error) {
			tenants, err := tenantsOf(ctx, c, h.peer)
			if err != nil {
				return false, "", err
			}
			for i := range tenants {
				if tenants[i].Status.AuthParams != nil && !tenants[i].IsOfRefractctl() {
					admitted = &tenants[i]
					return true, "admitted", nil
				}
			}
			if len(tenants) == 0 {
				return false, "", fmt.Errorf("cluster %s has no Tenant here: apply the one that refractctl generate tenant prints there", h.peer)
			}
			return false, "not admitted yet, its Events say why: kubectl describe tenant --namespace=" + tenants[0].Namespace, nil
		}); err != nil {
			return err
		}
		if namespace == "" {
			namespace = wire.TenantNamespace(of.ClusterID)
		}
		return printManifest(cmd, &auth.Identity{
			TypeMeta:   metav1.TypeMeta{APIVersion: auth.GroupVersion.String(), Kind: auth.IdentityKind},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: wire.ControlPlaneIdentity(of.ClusterID), Labels: map[string]string{wire.RemoteClusterIDLabel: of.ClusterID}},
			Spec: auth.IdentitySpec{ClusterID: core.ClusterID(of.ClusterID), Type: auth.ControlPlaneIdentityType, AuthParams: *admitted.Status.AuthParams,
				Namespace: ptr.To(admitted.Namespace)},
		})
	})
	command.Flags().StringVar(&namespace, "remote-tenant-namespace", "", "namespace of the Identity on the consumer (default liqo-tenant-ID)")
	return command
}

// newSecret returns a Secret of the handshake, in the tenant namespace of the peer.
func (h *handshake) newSecret(name, label string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace(h.peer), Name: name, Labels: map[string]string{label: "true", wire.RemoteClusterIDLabel: h.peer}}, Data: data}
}

// awaitKey waits until a controller has written a key of a Secret, and returns its value. setting is the value of the
// chart that starts the controller.
func (h *handshake) awaitKey(ctx context.Context, cmd *cobra.Command, c client.Client, secret *corev1.Secret, key, setting string) (value []byte, err error) {
	err = invocation.AwaitOne(ctx, cmd.ErrOrStderr(), "nonce of", h.peer, h.timeout, func(ctx context.Context) (bool, string, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
			return false, "", fmt.Errorf("getting Secret %s, %w", client.ObjectKeyFromObject(secret), err)
		}
		if value = secret.Data[key]; len(value) == 0 {
			return false, fmt.Sprintf("the controller manager has not written %s into Secret %s yet: it needs %s in the values of this cluster", key, client.ObjectKeyFromObject(secret), setting), nil
		}
		return true, "done", nil
	})
	return value, err
}

// signNonce has the controller manager sign a nonce, and returns the signature. An empty nonce stands for the one that
// was signed before.
func (h *handshake) signNonce(ctx context.Context, cmd *cobra.Command, c client.Client, nonce string) ([]byte, error) {
	secret := h.newSecret(wire.SignedNonceSecret, wire.SignedNonceLabel, map[string][]byte{wire.NonceKey: []byte(nonce)})
	present := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKeyFromObject(secret), present)
	switch {
	case apierrors.IsNotFound(err) && nonce == "":
		return nil, invocation.UsageError(fmt.Errorf("cluster %s has given no nonce yet: set --nonce", h.peer))
	case apierrors.IsNotFound(err):
		err = c.Create(ctx, secret)
	case err == nil && nonce != "" && string(present.Data[wire.NonceKey]) != nonce:
		// The signature of another nonce is useless.
		present.Data = secret.Data
		err = c.Update(ctx, present)
	}
	if err != nil {
		return nil, fmt.Errorf("writing Secret %s, %w", client.ObjectKeyFromObject(secret), err)
	}
	return h.awaitKey(ctx, cmd, c, secret, wire.SignedNonceKey, "authentication.joinProviders")
}

// ensureTenantNamespace creates the tenant namespace of a peer, unless it exists.
func ensureTenantNamespace(ctx context.Context, c client.Client, peer string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wire.TenantNamespace(peer), Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: peer}}}
	if err := c.Create(ctx, namespace); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("creating Namespace %s, %w", namespace.Name, err)
	}
	return nil
}

// printManifest prints an object as YAML.
func printManifest(cmd *cobra.Command, object client.Object) error {
	text, err := yaml.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding %s, %w", object.GetName(), err)
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}
