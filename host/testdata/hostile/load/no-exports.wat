;; Has nothing that a host could call.
;; want: exports: neither
(module (func))
