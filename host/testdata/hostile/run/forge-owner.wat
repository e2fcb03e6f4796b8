;; Lets somebody own the object.
;; want: GuardError: ownerReferences
(data (i32.const 0) "metadata.ownerReferences")
(data (i32.const 32) "[{\22uid\22:\221\22}]")
(func $bad (call $set_json (i32.const 1) (i32.const 0) (i32.const 24) (i32.const 32) (i32.const 13)))
