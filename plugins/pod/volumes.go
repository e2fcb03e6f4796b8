// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/hex"
	"strings"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

const ephemeralClass = "ephemeral.volumeClaimTemplate.spec.storageClassName"

// rewriteVolumes replaces volume sources whose content comes from the consumer's control plane.
func (a *access) rewriteVolumes() error {
	volumes := a.spec.Get("volumes")
	for i := range volumes.Len("") {
		volume := volumes.At(i)
		if volume.Is(ephemeralClass, a.storageClass) {
			a.chooseClass(volume)
		}
		if a.mode == remote {
			continue
		}
		a.renameRootCA(volume, "configMap.name")
		a.translateItems(volume.Get("downwardAPI.items"))
		if err := a.rewriteSources(volume.Get("projected.sources"), volume); err != nil {
			return err
		}
	}
	return nil
}

// chooseClass replaces the virtual storage class of an ephemeral volume with the class that was negotiated with the
// provider, or with the provider's default class. The plugin persistentvolumeclaim does the same for claims.
func (a *access) chooseClass(volume sdk.Node) {
	if class := a.ctx.Node().String("storageClass"); class != "" {
		volume.SetString(ephemeralClass, class)
		return
	}
	volume.Remove(ephemeralClass)
}

// rewriteSources mutates the sources of a projected volume.
func (a *access) rewriteSources(sources, volume sdk.Node) error {
	for i := sources.Len("") - 1; i >= 0; i-- {
		source := sources.At(i)
		a.renameRootCA(source, "configMap.name")
		a.translateItems(source.Get("downwardAPI.items"))
		token := source.Get("serviceAccountToken")
		if !token.Exists() {
			continue
		}
		secret, key, err := a.tokenSource(volume.String("name"), token.String("path"))
		if err != nil {
			return err
		}
		if secret == "" {
			sources.RemoveAt(i)
			continue
		}
		a.replaceToken(source, token.String("path"), secret, key)
	}
	return nil
}

// tokenSource returns the provider's Secret that contains the token, and the token's key in it. If it returns no
// Secret, the token must be removed from the volume.
func (a *access) tokenSource(volume, path string) (secret, key string, err error) {
	if a.reachesConsumer() && a.api.True("pending") {
		return "", "", sdk.Fail("the network has not reported yet at which address the provider reaches this cluster's API server, for which the pod mounts a token: " +
			"it is offloaded when the address is known; if the pod needs no API server, annotate it " + wire.APIServerSupportAnnotation + ": " + wire.APIServerSupportDisabled)
	}
	switch a.mode {
	case tokenAPI:
		pod := a.pod.Name()
		if len(pod)+len(wire.TokenSecretSuffix) > maxName {
			return "", "", sdk.Fail("the name of the pod is too long for its tokens: with " + wire.TokenSecretSuffix +
				" it names a Secret of at most 253 characters; shorten it or, if the pod needs no API server, annotate it " +
				wire.APIServerSupportAnnotation + ": " + wire.APIServerSupportDisabled)
		}
		return sdk.Concat(pod, wire.TokenSecretSuffix), tokenKey(volume, path), nil
	case legacy:
		if !strings.HasPrefix(volume, "kube-api-access-") {
			return "", "", nil
		}
		if secret = a.ctx.ServiceAccountSecretName(); secret == "" {
			return "", "", sdk.Fail("the provider has no Secret with a token of service account " + a.serviceAccount + " yet")
		}
		return secret, "token", nil
	}
	return "", "", nil
}

const maxName = 253

// tokenKey returns the key under which the virtual kubelet stores a token in the pod's Secret. It is the same as in
// Liqo's ServiceAccount reflection.
func tokenKey(volume, path string) string {
	digits := tokenDigits
	if path != "token" {
		sum := sha256Prefix(path)
		digits = hex.EncodeToString(sum[:3])
	}
	return sdk.Concat(volume, "-", digits)
}

// tokenDigits are the hash digits of the path "token", which is the path in the default volume of every pod.
const tokenDigits = "3c469e"

func (a *access) replaceToken(source sdk.Node, path, secret, key string) {
	source.Remove("serviceAccountToken")
	projection := source.SetMap("secret")
	projection.SetString("name", secret)
	item := projection.SetList("items").SetMap("-")
	item.SetString("key", key)
	item.SetString("path", path)
	if mode := a.tokenMode(); mode != 0 {
		item.SetInt("mode", mode)
	}
}

// tokenMode returns the file mode of a token, or 0 for the volume's mode. A kubelet makes projected tokens readable for
// the containers' user and for the fsGroup. The files of a Secret, however, always belong to root. Therefore, without
// an fsGroup, containers that may run as another user need a file that everybody can read.
func (a *access) tokenMode() int64 {
	switch {
	case a.spec.Has("securityContext.fsGroup"):
		return 0o440
	case a.runsAsRoot(a.spec.Get("initContainers")) && a.runsAsRoot(a.spec.Get("containers")):
		return 0o400
	}
	return 0
}

// runsAsRoot reports whether all containers are explicitly set to run as root. Otherwise a container may run as another
// user, because its image determines the user.
func (a *access) runsAsRoot(containers sdk.Node) bool {
	const unknown = -1
	user := a.spec.Int("securityContext.runAsUser", unknown)
	for i := range containers.Len("") {
		if containers.At(i).Int("securityContext.runAsUser", user) != 0 {
			return false
		}
	}
	return true
}
