// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/charts"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/printable"
)

// valueChecks are the checks of flags by name, for each of their values. They apply to all commands with the flag, and
// run before anything else, so a dry run includes them. A key with the name of a command before the flag is for this
// command only. Flags whose commands parse their values are not listed.
var valueChecks = map[string]func(string) error{
	"cluster-id":              checkClusterID,
	"provider":                checkClusterID,
	"remote-cluster-id":       checkClusterID,
	"consumer-cluster-id":     checkClusterID,
	"remote-tenant-namespace": checkNamespace,
	"remote-api-server-url":   checkServer,
	"api-server-url":          checkServer,
	"install api-server-url":  checkServerOrHost,
	"image":                   charts.CheckImage,
	"virtual-node":            CheckVirtualNode,
	"node":                    CheckVirtualNode,
	"runtime-class-name":      checkSubdomain,
	"storage-class":           checkSubdomain,
	"ingress-class":           checkSubdomain,
	"load-balancer-class":     checkKey,
	"kind":                    checkKind,
	"revision":                checkSubdomain,
	"to":                      checkSubdomain,
}

// pairChecks are the checks of flags for keys and values.
var pairChecks = map[string]func(key, value string) error{
	"label":              checkLabel,
	"node-selector":      checkLabel,
	"cluster-labels":     checkLabel,
	"global-labels":      checkLabel,
	"global-annotations": func(key, _ string) error { return checkKey(strings.ToLower(key)) },
}

// IsContent reports whether any text is a valid value of a flag, even an empty one.
func IsContent(flag *pflag.Flag) bool {
	_, kubectl := flag.Annotations[fromKubectl]
	return kubectl || flag.Name == "output" || flag.Name == "set" || strings.HasPrefix(flag.Name, "set-")
}

// checkValues returns an error if an argument or the value of a flag is impossible. A variable of a script that is not
// set makes an empty value, which would otherwise be taken for a flag that is not given.
func checkValues(cmd *cobra.Command, args []string) error {
	var problems []error
	for _, arg := range args {
		if arg == "" {
			problems = append(problems, errors.New("an argument is empty: set a value or omit it"))
		} else if !printable.IsLine(arg) {
			problems = append(problems, fmt.Errorf("the argument %q contains control characters: remove them", arg))
		}
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if IsContent(flag) {
			return
		}
		if err := checkFlag(cmd, flag); err != nil {
			problems = append(problems, err)
		}
	})
	return errors.Join(problems...)
}

// checkFlag checks the values of a flag that is set.
func checkFlag(cmd *cobra.Command, flag *pflag.Flag) error {
	flags := cmd.Flags()
	switch flag.Value.Type() {
	case "duration":
		duration, err := flags.GetDuration(flag.Name)
		if err == nil && duration <= 0 {
			err = fmt.Errorf("--%s is %s: use a positive duration such as 1m", flag.Name, duration)
		}
		return err
	case "stringToString":
		pairs, err := flags.GetStringToString(flag.Name)
		for _, key := range slices.Sorted(maps.Keys(pairs)) {
			if check := pairChecks[flag.Name]; err == nil && check != nil {
				if err = check(key, pairs[key]); err != nil {
					err = fmt.Errorf("--%s: %w", flag.Name, err)
				}
			}
		}
		return err
	case "string":
		return checkText(cmd, flag, flag.Value.String())
	}
	list, isList := flag.Value.(pflag.SliceValue)
	if !isList || flag.Name == "accept-label" { // an empty list of accepted labels is a valid value
		return nil
	}
	values := list.GetSlice()
	if len(values) == 0 {
		values = []string{""}
	}
	for _, value := range values {
		if err := checkText(cmd, flag, value); err != nil {
			return err
		}
	}
	return nil
}

// checkText checks one value of a flag of a command.
func checkText(cmd *cobra.Command, flag *pflag.Flag, value string) error {
	check, ok := valueChecks[cmd.Name()+" "+flag.Name]
	if !ok {
		check = valueChecks[flag.Name]
	}
	switch {
	case value == "":
		return fmt.Errorf("--%s is empty: set a value or omit the flag", flag.Name)
	case !printable.IsLine(value):
		return fmt.Errorf("--%s: %q contains control characters: remove them", flag.Name, value)
	case check != nil:
		if err := check(value); err != nil {
			return fmt.Errorf("--%s: %w", flag.Name, err)
		}
	}
	return nil
}

func checkClusterID(id string) error { return core.ClusterID(id).Validate() }

// checkServer checks the address of an API server.
func checkServer(address string) error {
	server, err := connection.ParseServer(address)
	switch {
	case err != nil:
		return fmt.Errorf("%q cannot be used: it %w, such as https://milan.example.com:6443", address[strings.LastIndex(address, "@")+1:], err)
	case connection.RefersToNoMachine(server):
		return fmt.Errorf("%q is an address that the pods of no cluster can reach: set the address of the API server", address)
	}
	return nil
}

// checkServerOrHost checks the address of an API server, which the chart completes if it is a host without https://.
func checkServerOrHost(address string) error {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	return checkServer(address)
}

// CheckVirtualNode checks the name of a virtual node. It is also the value of a label.
func CheckVirtualNode(name string) error {
	if len(name) > validation.LabelValueMaxLength {
		return fmt.Errorf("%q cannot be the name of a virtual node: must be no more than %d characters, because it is the value of a label", name, validation.LabelValueMaxLength)
	}
	return checkSubdomain(name)
}

func checkNamespace(name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("%q is not the name of a namespace: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

func checkSubdomain(name string) error {
	return joinProblems(name, validation.IsDNS1123Subdomain(name))
}

// checkKind checks the name of a kind or of its resource, with or without its API group.
func checkKind(kind string) error {
	name, group, hasGroup := strings.Cut(kind, ".")
	problems := validation.IsDNS1035Label(strings.ToLower(name))
	if hasGroup {
		problems = append(problems, validation.IsDNS1123Subdomain(group)...)
	}
	return joinProblems(kind, problems)
}

func checkKey(key string) error { return joinProblems(key, validation.IsQualifiedName(key)) }

func checkLabel(key, value string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return joinProblems(key+"="+value, validation.IsValidLabelValue(value))
}

// joinProblems returns an error with the problems of a value, or nil if there are none.
func joinProblems(value string, problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%q is invalid: %s", value, strings.Join(problems, "; "))
}
