// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// AuthParams are the credentials of a consumer for the API server of its provider, without its private key.
type AuthParams struct {
	// CA contains the certificates, in PEM, that verify the certificate of the API server. If it is empty, the
	// certificates of the consumer's system are used.
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

	// AwsConfig contains the credentials that Liqo issues on Amazon EKS instead of a certificate. Refract preserves the
	// field and never writes it.
	//
	// +optional
	AwsConfig *AwsConfig `json:"awsConfig,omitempty"`
}

// AwsConfig are the credentials of an IAM user.
type AwsConfig struct {
	// AwsUserArn is the ARN of the IAM user.
	AwsUserArn string `json:"awsUserArn"`
	// AwsAccessKeyID is the ID of the user's access key.
	AwsAccessKeyID string `json:"awsAccessKeyID"`
	// AwsSecretAccessKey is the user's secret access key.
	AwsSecretAccessKey string `json:"awsSecretAccessKey"`
	// AwsRegion is the region of the cluster.
	AwsRegion string `json:"awsRegion"`
	// AwsClusterName is the name of the cluster in Amazon EKS.
	AwsClusterName string `json:"awsClusterName"`
}

// IdentityType is the purpose of a certificate.
//
// +kubebuilder:validation:Enum=ControlPlane;ResourceSlice
type IdentityType string

// Purposes of certificates.
const (
	// ControlPlaneIdentityType is the purpose of certificates with which the consumer's controllers access its tenant
	// namespace.
	ControlPlaneIdentityType IdentityType = "ControlPlane"
	// ResourceSliceIdentityType is the purpose of certificates with which the virtual kubelet of one ResourceSlice
	// accesses the remote namespaces.
	ResourceSliceIdentityType IdentityType = "ResourceSlice"
)
