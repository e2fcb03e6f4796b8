// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// AuthParams are the credentials of a consumer for the API server of its provider, without its private key.
type AuthParams struct {
	// CA has the certificates, in PEM, to verify the API server with. Empty for those of the consumer's system.
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

	// AwsConfig has the credentials that Liqo issues on Amazon EKS instead of a certificate. Refract preserves it and never writes it.
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

// IdentityType is the purpose of a certificate.
//
// +kubebuilder:validation:Enum=ControlPlane;ResourceSlice
type IdentityType string

// Purposes of certificates.
const (
	// ControlPlaneIdentityType is for access of the consumer's controllers to its tenant namespace.
	ControlPlaneIdentityType IdentityType = "ControlPlane"
	// ResourceSliceIdentityType is for access of the virtual kubelet of one ResourceSlice to the remote namespaces.
	ResourceSliceIdentityType IdentityType = "ResourceSlice"
)
