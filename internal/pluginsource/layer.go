// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/google/go-containerregistry/pkg/v1/types"
)

// unpackers return the module in a layer, by the layer's media type. The layer is the module itself, or an archive
// that contains it.
var unpackers = map[types.MediaType]func([]byte) ([]byte, error){
	"application/wasm":                                  moduleItself, // CNCF: Wasm OCI artifact layout
	"application/vnd.wasm.content.layer.v1+wasm":        moduleItself, // wasm-to-oci
	"application/vnd.module.wasm.content.layer.v1+wasm": moduleItself, // Istio, Solo
	types.OCIUncompressedLayer:                          fromTar,
	types.DockerUncompressedLayer:                       fromTar,
	types.OCILayer:                                      fromTarGzip,
	types.DockerLayer:                                   fromTarGzip,
}

func moduleItself(data []byte) ([]byte, error) {
	if len(data) > MaxModuleBytes {
		return nil, Errorf(TooLarge, "the module has %d bytes, more than %d, the maximum", len(data), MaxModuleBytes)
	}
	return data, nil
}

func fromTarGzip(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, Errorf(WrongMediaType, "decompressing the layer, %w", err)
	}
	archive, err := readAll(reader, maxArchiveBytes, "the decompressed layer")
	if err != nil {
		return nil, err
	}
	return fromTar(archive)
}

// fromTar returns the only file of an archive whose name ends with .wasm.
func fromTar(archive []byte) (wasm []byte, err error) {
	found := ""
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF) && found == "":
			return nil, Errorf(WrongMediaType, "the layer is an archive without a file *.wasm")
		case errors.Is(err, io.EOF):
			return wasm, nil
		case err != nil:
			return nil, Errorf(WrongMediaType, "reading the layer as an archive, %w", err)
		case header.Typeflag != tar.TypeReg || path.Ext(header.Name) != ".wasm":
			continue
		case found != "":
			return nil, Errorf(WrongMediaType, "the layer is an archive with more than one file *.wasm: %q and %q", found, header.Name)
		}
		found = header.Name
		if wasm, err = readAll(reader, MaxModuleBytes, fmt.Sprintf("the file %q", header.Name)); err != nil {
			return nil, err
		}
	}
}
