// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// An example of a plugin that removes the labels and annotations of cloud vendors. They are meant for the controllers
// of the consumer's cloud. In the provider's cloud they are useless, and controllers there might even react to them.
//
// README.md shows how to write, build, test and use a plugin like this one.
package main

import "github.com/refract-project/refract/sdk"

var plugin = sdk.Register(sdk.Manifest{
	Name:    "strip-vendor-labels",
	Version: "1.0.0",
	Kinds:   []string{"*"},
	Writes:  []string{"metadata.labels", "metadata.annotations"},
	ConfigSchema: `{"type":"object","additionalProperties":false,"properties":{` +
		`"labels":{"type":"array","items":{"type":"string"},"description":"Globs of the labels to remove."},` +
		`"annotations":{"type":"array","items":{"type":"string"},"description":"Globs of the annotations to remove."}}}`,
}, sdk.Outgoing(outgoing))

func main() {}

// vendors contains one glob per line. It is used if the configuration has no list of globs. The part of a key before
// the slash is the domain of the vendor that defined the key.
const vendors = `*.amazonaws.com/*
*.eksctl.io/*
alb.ingress.kubernetes.io/*
service.beta.kubernetes.io/aws-*
cloud.google.com/*
*.gke.io/*
kubernetes.azure.com/*
service.beta.kubernetes.io/azure-*
*.oraclecloud.com/*
*.alibabacloud.com/*
service.beta.kubernetes.io/alibaba-*
*.digitalocean.com/*
service.beta.kubernetes.io/do-*
*.openshift.io/*
openshift.io/*
*.cattle.io/*`

func outgoing(ctx sdk.Context, object sdk.Object) error {
	strip(object.Labels(), ctx.Config().Get("labels"))
	strip(object.Annotations(), ctx.Config().Get("annotations"))
	return nil
}

// strip removes the keys that match the configured globs. An empty list in the configuration means that no keys are
// removed.
func strip(from sdk.StringMap, configured sdk.Node) {
	removed := 0
	if configured.Exists() {
		removed = from.RemoveListed(configured, "")
	} else {
		removed = from.RemoveGlob(vendors)
	}
	if removed > 0 {
		from.Prune()
	}
}
