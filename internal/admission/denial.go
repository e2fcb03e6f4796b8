// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package admission recognizes requests that were denied by an admission policy of the API server.
package admission

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// DeniedReason is the reason of Events about requests that a policy denied.
const DeniedReason = "PolicyDenied"

// denial matches the part of an API server's message that reports a denial by a ValidatingAdmissionPolicy. The message
// is parsed because the Status has no field for the policy.
var denial = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request[^\x00-\x1f"]*`)

// DenyingPolicy returns the name of the ValidatingAdmissionPolicy that denied the request, or "" if no policy denied
// it.
func DenyingPolicy(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	if found := denial.FindStringSubmatch(status.Status().Message); found != nil {
		return found[1]
	}
	return ""
}

// Note returns the text of an Event about an object. The Event reports that a policy denied a request which one of our
// processes made for this object.
func Note(policy string, err error) string {
	return fmt.Sprintf("ValidatingAdmissionPolicy %s denied a request that this object needs, which is retried: %s. "+
		"If the policy is of the Refract chart, upgrade the chart together with the images, or report this as a bug; "+
		"otherwise exclude the user of the request from the policy with a matchCondition.", policy, strings.TrimRight(err.Error(), ". "))
}
