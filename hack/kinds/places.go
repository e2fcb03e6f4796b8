// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/refract-project/refract/vk/reflection"
)

// place is a file that contains a copy of the list.
type place struct {
	path string
	// update returns the updated content of the file.
	update func(content string, kinds []reflection.Kind) (string, error)
}

var places = []place{
	{"controllers/virtualnode/forge.go", updateForge},
	{"api/plugins/v1alpha1/reflectedresource.go", updateRules},
	{"api/offloading/v1beta1/vkoptionstemplate.go", updateComment},
	{"charts/refract/values.schema.json", updateSchema},
	{"charts/refract/values.yaml", updateValues},
}

// hasPolicy reports whether users can choose the reflection policy of a kind. The other kinds have fixed rules.
func hasPolicy(kind reflection.Kind) bool {
	return kind.Policy != reflection.Always && kind.PolicyOf == ""
}

// inOrderOf sorts the kinds by the position of their names in content, and puts new kinds last, so that a new kind does
// not change the order of the others. The argument name returns the name that content uses for a kind.
func inOrderOf(content string, kinds []reflection.Kind, name func(reflection.Kind) string) []reflection.Kind {
	at := func(kind reflection.Kind) int {
		if i := strings.Index(content, name(kind)); i >= 0 {
			return i
		}
		return len(content)
	}
	return slices.SortedStableFunc(slices.Values(kinds), func(a, b reflection.Kind) int { return at(a) - at(b) })
}

// replace replaces the only match of an expression in content. It returns an error if there is not exactly one match.
func replace(content, expression, with string) (string, error) {
	found := regexp.MustCompile(expression).FindAllStringIndex(content, -1)
	if len(found) != 1 {
		return "", fmt.Errorf("%d parts match %s, want 1: adapt hack/kinds", len(found), expression)
	}
	return content[:found[0][0]] + with + content[found[0][1]:], nil
}

// wrap joins words into lines that begin with prefix and have at most width characters.
func wrap(words []string, prefix string, width int) string {
	var b strings.Builder
	line := prefix
	for i, word := range words {
		if i > 0 && len(line)+len(word) >= width {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = prefix
		}
		line += word + " "
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
	return b.String()
}

func updateForge(content string, kinds []reflection.Kind) (string, error) {
	var entries []string
	for _, kind := range inOrderOf(content, kinds, func(kind reflection.Kind) string { return fmt.Sprintf("{%q,", kind.Flag()) }) {
		entries = append(entries, fmt.Sprintf("{%q, %t},", kind.Flag(), hasPolicy(kind)))
	}
	return replace(content, `(?s)(?:\t\{"[a-z]+", (?:true|false)\},[^\n]*\n)+`, wrap(entries, "\t", 152))
}

func updateComment(content string, kinds []reflection.Kind) (string, error) {
	words := strings.Fields("ReflectorsConfig configures the reflection of each kind:")
	_, comment, _ := strings.Cut(content, "ReflectorsConfig configures")
	for i, kind := range inOrderOf(comment, kinds, func(kind reflection.Kind) string { return " " + kind.Flag() }) {
		end := ","
		if i == len(kinds)-1 {
			end = "."
		}
		words = append(words, kind.Flag()+end)
	}
	return replace(content, `(?:\t// ReflectorsConfig configures[^\n]*\n)(?:\t// [^\n]*\n)*`, wrap(words, "\t// ", 76))
}

// updateRules writes the rules that forbid ReflectedResources for the default kinds.
func updateRules(content string, kinds []reflection.Kind) (string, error) {
	// Kubernetes also serves the Events of the core group in the group events.k8s.io.
	groups := map[string][]string{"events.k8s.io": {"events"}}
	for _, kind := range kinds {
		resource := kind.Source.Resource
		// Two kinds have the resource "pods": pods themselves, and the tokens of ServiceAccounts, which are requested for
		// pods. For the second one, the rule contains "serviceaccounts" instead.
		if slices.Contains(groups[kind.Source.Group], resource) {
			resource = kind.Flag() + "s"
		}
		groups[kind.Source.Group] = append(groups[kind.Source.Group], resource)
	}
	var others []string
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		if group != "" {
			others = append(others, fmt.Sprintf("!(self.group == '%s' && self.resource in %s)", group, celList(groups[group])))
		}
	}
	const rule = `// +kubebuilder:validation:XValidation:rule="%s",message="this resource is always reflected: configure it with the flags of the virtual kubelet"` + "\n"
	core := fmt.Sprintf("!(size(self.group) == 0 && self.resource in %s)", celList(groups[""]))
	return replace(content, `(?:// \+kubebuilder:validation:XValidation:rule="[^"\n]*",message="this resource is always reflected: [^\n]*\n)+`,
		fmt.Sprintf(rule, core)+fmt.Sprintf(rule, strings.Join(others, " && ")))
}

func celList(resources []string) string { return "['" + strings.Join(resources, "','") + "']" }

// updateSchema writes the list of kinds that have only the common settings. Kinds with additional settings have
// properties of their own in the schema.
func updateSchema(content string, kinds []reflection.Kind) (string, error) {
	names := map[bool][]string{}
	_, patterns, _ := strings.Cut(content, `"^(configmap|`)
	for _, kind := range inOrderOf("configmap|"+patterns, kinds, reflection.Kind.Flag) {
		if !strings.Contains(content, fmt.Sprintf("            %q: {\n", kind.Flag())) {
			names[hasPolicy(kind)] = append(names[hasPolicy(kind)], kind.Flag())
		}
	}
	for policy, definition := range map[bool]string{true: "reflection", false: "reflectionWithoutType"} {
		line := fmt.Sprintf(`"^(%s)$": { "$ref": "#/definitions/%s" }`, strings.Join(names[policy], "|"), definition)
		var err error
		content, err = replace(content, `"\^\([a-z|]+\)\$": \{ "\$ref": "#/definitions/`+definition+`" \}`, line)
		if err != nil {
			return "", err
		}
	}
	return content, nil
}

// updateValues adds the values of a new kind after the existing values.
func updateValues(content string, kinds []reflection.Kind) (string, error) {
	block := regexp.MustCompile(`(?m)^  reflection:\n(?:(?:    .*)?\n)+`).FindAllStringIndex(content, -1)
	if len(block) != 1 {
		return "", fmt.Errorf("there are %d blocks reflection, want 1: adapt hack/kinds", len(block))
	}
	values := strings.TrimRight(content[block[0][0]:block[0][1]], "\n")
	rest := content[block[0][0]+len(values):]
	for _, kind := range kinds {
		if regexp.MustCompile(`(?m)^    ` + kind.Flag() + `:$`).MatchString(values) {
			continue
		}
		values += fmt.Sprintf("\n    %s:\n      workers: %d", kind.Flag(), kind.Workers)
		if hasPolicy(kind) {
			values += fmt.Sprintf("\n      type: %s", kind.Policy)
		}
	}
	return content[:block[0][0]] + values + rest, nil
}
