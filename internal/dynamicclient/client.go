// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package dynamicclient makes dynamic clients that decode what they watch in one pass.
//
// client-go reads the JSON of a watch event about nine times: to find its end, to validate and to take apart the envelope, to find out
// the kind of the object, whether it is a list, and to build it, each with a validation of its own. For a virtual kubelet, which
// does little but watch, that is half of all processor time; for the controllers, a quarter. Here one pass finds the end of an event and a second
// one builds the object. Everything that is not a single object (lists, errors) goes the usual way.
package dynamicclient

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// New returns a client like that of dynamic.NewForConfig. It is safe for concurrent use.
func New(config *rest.Config) (dynamic.Interface, error) {
	config = dynamic.ConfigFor(config)
	config.NegotiatedSerializer = negotiated{config.NegotiatedSerializer, &parsers{}}
	config.GroupVersion, config.APIPath = nil, "/" // the client names whole paths
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to %s, %w", config.Host, err)
	}
	restClient, err := rest.UnversionedRESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("preparing the client of %s, %w", config.Host, err)
	}
	return dynamic.New(restClient), nil
}

// negotiated replaces the decoders of JSON.
type negotiated struct {
	runtime.NegotiatedSerializer
	parsers *parsers
}

func (n negotiated) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := append([]runtime.SerializerInfo(nil), n.NegotiatedSerializer.SupportedMediaTypes()...)
	for i := range infos {
		if infos[i].MediaType != runtime.ContentTypeJSON {
			continue
		}
		infos[i].Serializer = objects{infos[i].Serializer, n.parsers}
		stream := *infos[i].StreamSerializer
		stream.Serializer, stream.Framer = events{stream.Serializer}, framer{stream.Framer}
		infos[i].StreamSerializer = &stream
	}
	return infos
}

// framer finds the ends of the events in a stream. What is written is framed as usual.
type framer struct{ runtime.Framer }

func (framer) NewFrameReader(r io.ReadCloser) io.ReadCloser { return newFrameReader(r) }

var _ runtime.Framer = framer{json.Framer}
