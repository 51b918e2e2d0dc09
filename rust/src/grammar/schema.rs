//! JSON schemas: bounded before they are compiled, and held to little white space.

use serde_json::{json, Map, Value};

use super::bounds;
use super::references::{References, Use};
use crate::abi::Failure;

/// White space between the parts of JSON: what people and programs write, but no end of it, as a model
/// that is held to a schema and has nothing to say would fill its answer with it.
const WHITE_SPACE: &str = r"[ \t]|\r?\n[ \t]{0,32}";

/// The key by which llguidance is told how to read a schema.
const GUIDANCE: &str = "x-guidance";

/// Keywords that constrain nothing.
const ANNOTATIONS: [&str; 9] = [
    GUIDANCE,
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "$comment",
    "title",
    "description",
    "default",
];

/// Keywords whose schemas the library merges with what stands beside them.
const MERGING: [&str; 4] = ["allOf", "anyOf", "oneOf", "$ref"];

/// Keywords that hold definitions.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Lists whose length costs more than in proportion.
const LISTS: [&str; 4] = ["required", "prefixItems", "allOf", "oneOf"];

/// A part of a schema that is still to be looked at.
struct Part<'a> {
    definition: usize,
    levels: usize,
    key: &'a str,
    value: &'a Value,
    /// Whether it may be merged with something, for which what it refers to is copied.
    merged: bool,
}

/// What a reference within `root` refers to, as the library reads it: pointers are not unescaped.
fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    if reference == "#" || reference == "#/" {
        return Some(root);
    }
    reference.strip_prefix("#/")?.split('/').try_fold(root, |at, step| match at {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => at.get(step),
    })
}

/// Whether the parts of an object are merged with each other.
fn merges(object: &Map<String, Value>) -> bool {
    let constraints = object.keys().filter(|key| !ANNOTATIONS.contains(&key.as_str())).count();
    object.contains_key("allOf")
        || constraints > 1 && MERGING.iter().any(|&key| object.contains_key(key))
}

fn check_count(part: &Part, count: usize) -> Result<(), Failure> {
    let holds_definitions = DEFINITIONS.contains(&part.key);
    let listed = part.value.is_object() || LISTS.contains(&part.key);
    if listed && !holds_definitions && count > bounds::PROPERTIES_MAX {
        return Err(Failure::invalid(format!(
            "{} entries in \"{}\"; the limit is {}",
            count,
            part.key,
            bounds::PROPERTIES_MAX
        )));
    }
    Ok(())
}

/// Refuses a schema whose references go too deep or multiply, and objects with too many properties.
pub fn check(root: &Value) -> Result<(), Failure> {
    let mut references = References::default();
    let (first, _) = references.definition("#", Use::Named);
    let mut left =
        vec![Part { definition: first, levels: 1, key: "schema", value: root, merged: false }];
    let mut visits = 0;
    while let Some(part) = left.pop() {
        visits += 1;
        bounds::check_size(visits)?;
        references.add_part(part.definition);
        match part.value {
            Value::Object(object) => {
                check_count(&part, object.len())?;
                let merged = part.merged || merges(object);
                for (key, value) in object {
                    if let (true, Some(name)) = (key == "$ref", value.as_str()) {
                        let name = if name == "#/" { "#" } else { name };
                        let by = if merged { Use::Copied } else { Use::Named };
                        let (to, new) = references.definition(name, by);
                        references.add(part.definition, to, part.levels, by);
                        if let (true, Some(value)) = (new, target(root, name)) {
                            left.push(Part {
                                definition: to,
                                levels: 1,
                                key: "$ref",
                                value,
                                merged, // And so is all that it refers to.
                            });
                        }
                    } else {
                        left.push(Part {
                            definition: part.definition,
                            levels: part.levels + 1,
                            key,
                            value,
                            merged: merged && !DEFINITIONS.contains(&key.as_str()),
                        });
                    }
                }
            }
            Value::Array(items) => {
                check_count(&part, items.len())?;
                left.extend(items.iter().map(|value| Part {
                    definition: part.definition,
                    levels: part.levels + 1,
                    key: "item",
                    value,
                    merged: part.merged,
                }));
            }
            _ => {}
        }
    }
    bounds::check_extent(&references.extent())
}

/// Keywords whose values are schemas by name, schemas, and lists of schemas.
const NAMED_SCHEMAS: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
const SCHEMAS: [&str; 9] = [
    "items",
    "additionalProperties",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "unevaluatedProperties",
];
const SCHEMA_LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];

/// Keywords whose numbers are bounds from below.
const LOWER_BOUNDS: [&str; 2] = ["minimum", "exclusiveMinimum"];
/// The least bound that the library counts from: the number after -2^63 in double precision. At -2^63,
/// whose negative has no 64 bits, it recurses without end.
const LOWER_BOUND_MIN: i64 = -9_223_372_036_854_774_784;

/// Whether `value` is a bound from below that the library does not survive.
fn too_low(value: &Value) -> bool {
    value.as_f64().is_some_and(|bound| bound < LOWER_BOUND_MIN as f64)
}

/// Makes the schema one that the library can enforce; whether anything changed. The schema is within
/// the bounds.
///
/// - `uniqueItems` is taken out, which every set of pydantic has: whoever reads an entry twice has the
///   set all the same.
/// - Bounds below those of 64 bits, as int64 has in many a generated schema, are raised to them.
pub fn adapt(schema: &mut Value) -> bool {
    let mut changed = false;
    let mut left = vec![schema];
    while let Some(part) = left.pop() {
        let Value::Object(object) = part else { continue };
        if object.get("uniqueItems").is_some_and(Value::is_boolean) {
            object.shift_remove("uniqueItems");
            changed = true;
        }
        for (key, value) in object.iter_mut() {
            let key = key.as_str();
            if LOWER_BOUNDS.contains(&key) && too_low(value) {
                *value = LOWER_BOUND_MIN.into();
                changed = true;
            } else if NAMED_SCHEMAS.contains(&key) {
                left.extend(value.as_object_mut().into_iter().flat_map(Map::values_mut));
            } else if SCHEMA_LISTS.contains(&key) && value.is_array() {
                left.extend(value.as_array_mut().into_iter().flatten());
            } else if SCHEMAS.contains(&key) {
                left.push(value);
            }
        }
    }
    changed
}

/// Refuses bounds that [`adapt`] does not reach, as references may lead anywhere.
pub fn check_lower_bounds(adapted: &Value) -> Result<(), Failure> {
    let mut left = vec![adapted];
    while let Some(part) = left.pop() {
        match part {
            Value::Object(object) => {
                for (key, value) in object {
                    if LOWER_BOUNDS.contains(&key.as_str()) && too_low(value) {
                        return Err(Failure::invalid(format!(
                            "\"{key}\" of {value}, where no schema is expected, is below 64 bits"
                        )));
                    }
                    left.push(value);
                }
            }
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    Ok(())
}

/// What the schema says of itself to the library, with a bound on white space where it sets none.
fn guidance(schema: &Value) -> Value {
    let mut options = match schema.get(GUIDANCE) {
        None => Map::new(),
        Some(Value::Object(options)) => options.clone(),
        Some(other) => return other.clone(), // Not an object: the library says so.
    };
    let none = options.get("whitespace_flexible") == Some(&Value::Bool(false));
    let own = options.get("whitespace_pattern").is_some_and(|pattern| !pattern.is_null());
    if !none && !own {
        options.insert("whitespace_pattern".to_string(), json!(WHITE_SPACE));
    }
    Value::Object(options)
}

/// The schema with its white space bounded.
pub fn bound_white_space(schema: Value) -> Value {
    let guidance = guidance(&schema);
    match schema {
        Value::Object(mut object) => {
            object.insert(GUIDANCE.to_string(), guidance);
            Value::Object(object)
        }
        Value::Bool(true) => json!({ GUIDANCE: guidance }),
        other => other,
    }
}

/// The same for a schema as it is written, of which nothing else changes: of two values with one key
/// the last holds.
pub fn bound_white_space_of_text(text: &str, schema: &Value) -> String {
    let added = format!("\"{GUIDANCE}\":{}}}", guidance(schema));
    match schema {
        Value::Object(object) => {
            let open = text.trim_end().strip_suffix('}').unwrap_or(text);
            format!("{open}{}{added}", if object.is_empty() { "" } else { "," })
        }
        Value::Bool(true) => format!("{{{added}"),
        _ => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(schema: Value) -> String {
        check(&schema).expect_err("should be refused").message
    }

    fn chain(length: usize) -> Value {
        let mut definitions = Map::new();
        for i in 0..length {
            let next = format!("#/$defs/a{}", i + 1);
            definitions.insert(
                format!("a{i}"),
                json!({"type": "object", "properties": {"x": {"$ref": next}}}),
            );
        }
        definitions.insert(format!("a{length}"), json!({"type": "null"}));
        json!({"$ref": "#/$defs/a0", "$defs": definitions})
    }

    #[test]
    fn unique_items_are_dropped_where_they_are_a_keyword() {
        let mut schema = json!({"type": "object", "properties": {
            "uniqueItems": {"type": "array", "uniqueItems": true},
            "b": {"anyOf": [{"type": "array", "uniqueItems": true}, {"type": "null"}]}},
            "default": {"uniqueItems": true}});
        assert!(adapt(&mut schema));
        assert_eq!(
            schema,
            json!({"type": "object", "properties": {
                "uniqueItems": {"type": "array"},
                "b": {"anyOf": [{"type": "array"}, {"type": "null"}]}},
                "default": {"uniqueItems": true}})
        );
        assert!(!adapt(&mut schema));
    }

    #[test]
    fn bounds_below_64_bits_are_raised() {
        let mut schema = json!({"properties": {
            "minimum": {"type": "integer", "minimum": i64::MIN, "maximum": -1e19},
            "b": {"items": {"exclusiveMinimum": -1e300}}, "c": {"minimum": LOWER_BOUND_MIN}}});
        assert!(adapt(&mut schema));
        assert_eq!(
            schema,
            json!({"properties": {
                "minimum": {"type": "integer", "minimum": LOWER_BOUND_MIN, "maximum": -1e19},
                "b": {"items": {"exclusiveMinimum": LOWER_BOUND_MIN}},
                "c": {"minimum": LOWER_BOUND_MIN}}})
        );
        assert!(!adapt(&mut schema));
        assert!(check_lower_bounds(&schema).is_ok());
        schema["default"] = json!([{"minimum": -1e30}]);
        assert!(!adapt(&mut schema));
        assert!(check_lower_bounds(&schema).is_err());
    }

    #[test]
    fn references_go_only_so_deep() {
        assert!(check(&chain(300)).is_ok());
        assert!(refused(chain(900)).contains("the limit is 1000"));
        assert!(refused(chain(5000)).contains("deep"));
    }

    #[test]
    fn circles_are_legal() {
        let tree = json!({"$defs": {"tree": {"type": "object", "properties": {
            "left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}}}},
            "$ref": "#/$defs/tree"});
        assert!(check(&tree).is_ok());
        assert!(check(&json!({"properties": {"again": {"$ref": "#"}}})).is_ok());
    }

    #[test]
    fn copies_that_multiply_are_refused() {
        let mut definitions = Map::new();
        for i in 0..40 {
            let next = json!({"type": "object", "$ref": format!("#/$defs/a{}", i + 1)});
            definitions.insert(format!("a{i}"), json!({"properties": {"x": next, "y": next}}));
        }
        definitions.insert("a40".to_string(), json!({"type": "object"}));
        let schema = json!({"$ref": "#/$defs/a0", "$defs": definitions});
        assert!(refused(schema).contains("parts"));
    }

    #[test]
    fn choices_of_what_is_merged_multiply_too() {
        let doubling = |link: fn(Value) -> Value| {
            let mut definitions = Map::new();
            for i in 0..40 {
                let next = json!({"$ref": format!("#/$defs/a{}", i + 1)});
                definitions.insert(format!("a{i}"), link(next));
            }
            definitions.insert("a40".to_string(), json!({"type": "object"}));
            check(&json!({"$ref": "#/$defs/a0", "$defs": definitions}))
        };
        let typed = |next: Value| json!({"type": "object", "anyOf": [next, next]});
        let merged = |next: Value| json!({"allOf": [{"properties": {"x": next, "y": next}}]});
        let choice = |next: Value| json!({"anyOf": [next, {"properties": {"x": next}}]});
        assert!(doubling(typed).is_err());
        assert!(doubling(merged).is_err());
        assert!(doubling(choice).is_ok());
    }

    #[test]
    fn what_is_merged_merges_all_that_it_refers_to() {
        let doubled = |top: Value| {
            let mut definitions = Map::new();
            for i in 0..40 {
                let next = json!({"$ref": format!("#/$defs/a{}", i + 1)});
                definitions.insert(format!("a{i}"), json!({"oneOf": [next, next]}));
            }
            definitions.insert("a40".to_string(), json!({"type": "object"}));
            let mut schema = top;
            schema["$defs"] = definitions.into();
            check(&schema)
        };
        let first = json!({"$ref": "#/$defs/a0"});
        assert!(doubled(first.clone()).is_ok());
        assert!(doubled(json!({"oneOf": [first, true]})).is_ok());
        assert!(doubled(json!({"allOf": [first, true]})).is_err());
    }

    #[test]
    fn objects_have_only_so_many_properties() {
        let properties = |count: usize| -> Value {
            (0..count).map(|i| (format!("p{i}"), json!(true))).collect::<Map<_, _>>().into()
        };
        assert!(check(&json!({"properties": properties(2000)})).is_ok());
        assert!(refused(json!({"properties": properties(2001)})).contains("2001 entries"));
        assert!(check(&json!({"$defs": properties(5000)})).is_ok());
        let names: Vec<_> = (0..3000).map(|i| i.to_string()).collect();
        assert!(refused(json!({"required": names})).contains("\"required\""));
        assert!(check(&json!({"enum": names})).is_ok());
    }

    #[test]
    fn white_space_is_bounded_unless_the_schema_says_otherwise() {
        let bounded = |schema: Value| bound_white_space(schema)[GUIDANCE].clone();
        assert_eq!(bounded(json!({}))["whitespace_pattern"], WHITE_SPACE);
        assert_eq!(bounded(json!(true))["whitespace_pattern"], WHITE_SPACE);
        assert_eq!(bounded(json!({GUIDANCE: {}}))["whitespace_pattern"], WHITE_SPACE);
        let own = json!({"whitespace_pattern": " "});
        assert_eq!(bounded(json!({GUIDANCE: own})), own);
        let none = json!({"whitespace_flexible": false});
        assert_eq!(bounded(json!({GUIDANCE: none})), none);
    }

    #[test]
    fn a_written_schema_is_only_added_to() {
        for text in
            ["{}", "{\"type\": \"object\"}", "{\"x-guidance\": {\"lenient\": true}}", "true"]
        {
            let schema: Value = serde_json::from_str(text).unwrap();
            let bounded = bound_white_space_of_text(text, &schema);
            let again: Value = serde_json::from_str(&bounded).unwrap();
            assert_eq!(again, bound_white_space(schema), "{bounded}");
        }
    }
}
