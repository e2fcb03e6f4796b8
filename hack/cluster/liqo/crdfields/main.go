// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Crdfields prints Liqo's CRDs of networks and addresses without their descriptions, as a JSON list. The tests of
// api/crds compare the list with the CRDs of api/crds/network.
//
//	liqo=$(go -C hack/cluster/liqo list -m -f '{{.Dir}}' github.com/liqotech/liqo)
//	go -C hack/cluster/liqo run ./crdfields "$liqo" > api/crds/testdata/liqo-network.json
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// files lists the files of the CRDs that both Liqo and Refract have.
var files = []string{
	"ipam.liqo.io_ips", "ipam.liqo.io_networks", "networking.liqo.io_configurations", "networking.liqo.io_connections",
	"networking.liqo.io_gatewayclients", "networking.liqo.io_gatewayservers", "networking.liqo.io_publickeies",
	"networking.liqo.io_wggatewayclienttemplates", "networking.liqo.io_wggatewayservertemplates",
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: crdfields FOLDER, that of Liqo's module")
	}
	var specs []any
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(os.Args[1], "deployments/liqo/charts/liqo-crds/crds", file+".yaml"))
		if err != nil {
			log.Fatal(err)
		}
		crd := map[string]any{}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			log.Fatal(err)
		}
		specs = append(specs, withoutTexts(crd["spec"]))
	}
	if err := json.NewEncoder(os.Stdout).Encode(specs); err != nil {
		log.Fatal(err)
	}
}

// withoutTexts removes the descriptions from a schema. It also removes the properties of embedded Service specs,
// because their schemas come from Kubernetes.
func withoutTexts(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if _, isText := value["description"].(string); isText {
			delete(value, "description")
		}
		if fields, ok := value["properties"].(map[string]any); ok && fields["clusterIP"] != nil {
			delete(value, "properties")
		}
		for key := range value {
			value[key] = withoutTexts(value[key])
		}
	case []any:
		for i := range value {
			value[i] = withoutTexts(value[i])
		}
	}
	return value
}
