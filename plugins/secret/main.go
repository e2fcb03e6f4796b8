// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for Secrets. As in Liqo's configuration data reflection, they are reflected unchanged: data, type,
// immutable, and fields of newer Kubernetes versions. Labels and annotations that the virtual node excludes from
// reflection are removed. In detail:
//
//   - A service account token (type kubernetes.io/service-account-token) gives everybody who can read it access to
//     this cluster's API server. It is reflected only in the API server mode Legacy, in which offloaded pods need it.
//     In every other mode, including unknown modes, it is not reflected.
//   - The copy of such a token has the type Opaque, because the provider deletes tokens of service accounts that do
//     not exist there. Offloaded pods find the copy by the label kubernetes.io/service-account.name, which has the
//     value of the annotation of the same name. Label and annotation are reflected even if the virtual node excludes
//     them: without them, the copy would count as an ordinary Secret if its namespace were offloaded again.
//   - Tokens that another cluster stores in this cluster for the pods that it has offloaded (label
//     offloading.liqo.io/service-account-name) are not reflected, because they are only for pods of this cluster.
//   - All other types are unchanged, including types that grant access: bootstrap tokens
//     (bootstrap.kubernetes.io/token, which have no effect outside of kube-system), the releases of Helm
//     (helm.sh/release.v1, which users of the provider can then see in the remote namespace), and registry
//     credentials. Users exclude a single Secret with the annotation liqo.io/skip-reflection, or all Secrets with the
//     policy AllowList.
package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

var plugin = sdk.Register(sdk.Manifest{
	Name:         "secret",
	Version:      "1.0.0",
	Kinds:        []string{"Secret"},
	Writes:       []string{"metadata.labels", "metadata.annotations", "type"},
	Capabilities: []string{"skip"},
}, sdk.Outgoing(outgoing))

func main() {}

const (
	accountAnnotation = "metadata.annotations[" + wire.TokenServiceAccountLabel + "]"
	accountLabel      = "metadata.labels[" + wire.TokenServiceAccountLabel + "]"
	podTokensLabel    = "metadata.labels[" + wire.ServiceAccountNameLabel + "]"

	tokenType       = "kubernetes.io/service-account-token"
	maxLabelValue   = 63
	modeThatNeedsIt = "Legacy"
)

func outgoing(ctx sdk.Context, secret sdk.Object) error {
	if secret.Has(podTokensLabel) {
		return sdk.Skip("it holds tokens of another cluster, for its pods that run here")
	}
	account, isToken := tokenOf(secret)
	if isToken {
		if mode := ctx.APIServerSupport(); mode != modeThatNeedsIt {
			return sdk.Skip(sdk.Concat("service-account tokens are only reflected in API server mode Legacy; the mode is ", mode))
		}
		if err := checkAccount(account); err != nil {
			return err
		}
	}
	sdk.FilterMetadata(ctx, secret)
	if isToken {
		secret.SetString("type", "Opaque")
		secret.SetString(accountLabel, account)
		secret.SetString(accountAnnotation, account)
	}
	return nil
}

// tokenOf returns the service account whose token a Secret contains. The type identifies an original token Secret, and
// the label identifies a copy.
func tokenOf(secret sdk.Object) (account string, isToken bool) {
	account = secret.String(accountAnnotation)
	if secret.Is("type", tokenType) {
		return account, true
	}
	return account, account != "" && secret.Is(accountLabel, account)
}

// checkAccount returns an error if the name of the service account is not a valid label value.
func checkAccount(account string) error {
	if account == "" {
		return sdk.Fail("type " + tokenType + " needs the annotation " + wire.TokenServiceAccountLabel +
			", the name of the service account")
	}
	if len(account) > maxLabelValue {
		return sdk.Fail(sdk.Concat("the service account ", account, " has a name of more than 63 characters, which the label ",
			wire.TokenServiceAccountLabel, " of the copy cannot hold: give the pods a service account with a shorter name"))
	}
	return nil
}
