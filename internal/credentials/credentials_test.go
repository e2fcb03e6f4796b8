// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package credentials_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/refract-project/refract/internal/credentials"
)

func token(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

func TestValidity(t *testing.T) {
	t.Parallel()
	certificate, _, err := cert.GenerateSelfSignedCertKey("milan", nil, nil)
	require.NoError(t, err)
	found := credentials.ValidityOf(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certificate}})
	assert.True(t, found.Known())
	assert.Positive(t, time.Until(found.Until))

	found = credentials.ValidityOf(&rest.Config{BearerToken: token(`{"iat":1000,"exp":4600}`)})
	assert.Equal(t, time.Hour, found.Life())
	for _, other := range []string{"", "token", "a.b.c", token(`{"iat":1000}`), token(`{"exp":1000}`), token(`[]`), token("\xff")} {
		assert.False(t, credentials.ValidityOf(&rest.Config{BearerToken: other}).Known(), "%q", other)
	}
}

func TestAccount(t *testing.T) {
	t.Parallel()
	namespace, name := credentials.Account(token(`{"sub":"system:serviceaccount:liqo-tenant-rome:refract-consumer"}`))
	assert.Equal(t, "liqo-tenant-rome/refract-consumer", namespace+"/"+name)
	for _, other := range []string{"", "a.b", token(`{"sub":"rome"}`), token(`{"sub":"system:serviceaccount:rome"}`), token(`{"sub":7}`)} {
		namespace, name := credentials.Account(other)
		assert.Empty(t, namespace+name, "%q", other)
	}
}
