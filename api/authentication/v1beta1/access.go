// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// AuthParams are what a consumer opens the API server of its provider with, beside its private key.
type AuthParams struct {
	// CA are the certificates, in PEM, that the API server is verified with. Empty for those of the consumer's system.
	//
	// +optional
	CA []byte `json:"ca,omitempty"`

	// SignedCRT is the client certificate, in PEM.
	//
	// +optional
	SignedCRT []byte `json:"signedCRT,omitempty"`

	// APIServer is the URL of the API server.
	//
	// +optional
	APIServer string `json:"apiServer,omitempty"`

	// ProxyURL is the URL of a proxy in front of the API server.
	//
	// +optional
	ProxyURL *string `json:"proxyURL,omitempty"`

	// AwsConfig is what Liqo gives out on Amazon EKS in place of a certificate. Refract keeps it and never writes it.
	//
	// +optional
	AwsConfig *AwsConfig `json:"awsConfig,omitempty"`
}

// AwsConfig are the credentials of an IAM user.
type AwsConfig struct {
	// AwsUserArn is the ARN of the user.
	AwsUserArn string `json:"awsUserArn"`
	// AwsAccessKeyID is the id of its access key.
	AwsAccessKeyID string `json:"awsAccessKeyID"`
	// AwsSecretAccessKey is its access key.
	AwsSecretAccessKey string `json:"awsSecretAccessKey"`
	// AwsRegion is the region of the cluster.
	AwsRegion string `json:"awsRegion"`
	// AwsClusterName is the name of the cluster at Amazon.
	AwsClusterName string `json:"awsClusterName"`
}

// IdentityType says what a certificate is for.
//
// +kubebuilder:validation:Enum=ControlPlane;ResourceSlice
type IdentityType string

// Purposes of certificates.
const (
	// ControlPlaneIdentityType is the access of the consumer's controllers to its tenant namespace.
	ControlPlaneIdentityType IdentityType = "ControlPlane"
	// ResourceSliceIdentityType is the access of the virtual kubelet of one ResourceSlice to the remote namespaces.
	ResourceSliceIdentityType IdentityType = "ResourceSlice"
)
