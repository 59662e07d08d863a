# models/ to one C file that defines what core/src/lang/embedded_models.h declares.
#
#     cmake -DMODELS=DIR -DOUT=FILE -DAT_ONCE=PATH;... [-DPACK=FILE] -P embed.cmake
#
# The files AT_ONCE (paths under models/ without .json) have tables of their own. With PACK only they and the list of cards are in
# the C file; the others go to the pack, an array of JSON.
#
# Line breaks and indentation go, JSON strings cannot hold them, and so do notes, which nothing reads. A file that is not
# JSON stops the build.
cmake_minimum_required(VERSION 3.25)

set(bodies "")
set(array_count 0)
set(pack "")
set(pack_length 0)

# The text of a file, without what nothing reads.
function(read_file out path)
    file(READ "${path}" text)
    string(JSON kind ERROR_VARIABLE problem TYPE "${text}")
    if(problem)
        message(FATAL_ERROR "${path}: ${problem}")
    endif()
    string(REGEX REPLACE "[\r\n]+[ \t]*" "" text "${text}")
    string(REGEX REPLACE "\"note\": \"[^\"\\\\]*\"," "" text "${text}")
    set(${out} "${text}" PARENT_SCOPE)
endfunction()

function(count_bytes out text)
    string(HEX "${text}" hex)
    string(LENGTH "${hex}" length)
    math(EXPR length "${length} / 2")
    set(${out} ${length} PARENT_SCOPE)
endfunction()

# Appends a text to `bodies`; `initializer` becomes {"name", text, length, is_given, pack_at, pack_length}.
function(embed_text name text packed)
    string(HEX "${text}" hex)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    count_bytes(length "${text}")
    string(APPEND bodies "static const unsigned char text_${array_count}[] = {${bytes}0};\n")
    set(bodies "${bodies}" PARENT_SCOPE)
    set(initializer "{\"${name}\", (const char *)text_${array_count}, ${length}, 0, ${packed}}" PARENT_SCOPE)
    math(EXPR array_count "${array_count} + 1")
    set(array_count ${array_count} PARENT_SCOPE)
endfunction()

# Appends a text to the pack; `packed` becomes pack_at, pack_length.
function(pack_text text)
    if(pack STREQUAL "")
        string(APPEND pack "[\n")
    else()
        string(APPEND pack ",\n")
    endif()
    count_bytes(length "${text}")
    math(EXPR at "${pack_length} + 2")
    math(EXPR pack_length "${at} + ${length}")
    set(packed "${at}, ${length}" PARENT_SCOPE)
    set(pack "${pack}${text}" PARENT_SCOPE)
    set(pack_length ${pack_length} PARENT_SCOPE)
endfunction()

# A file under models/, into the C file or the pack.
function(embed_file name path)
    read_file(text "${MODELS}/${path}.json")
    set(packed "0, 0")
    if(PACK AND NOT path IN_LIST AT_ONCE)
        pack_text("${text}")
        set(text "")
    endif()
    embed_text("${name}" "${text}" "${packed}")
    foreach(changed bodies array_count initializer pack pack_length)
        set(${changed} "${${changed}}" PARENT_SCOPE)
    endforeach()
endfunction()

# All .json files of the folders, each given as PREFIX=FOLDER, sorted by name, as a table.
function(embed_folder table)
    set(named "")
    foreach(folder IN LISTS ARGN)
        string(REGEX MATCH "^([^=]*)=(.*)$" _ "${folder}")
        set(prefix "${CMAKE_MATCH_1}")
        file(GLOB paths "${MODELS}/${CMAKE_MATCH_2}/*.json")
        foreach(path IN LISTS paths)
            get_filename_component(name "${path}" NAME_WLE)
            list(APPEND named "${prefix}${name}|${CMAKE_MATCH_2}/${name}")
        endforeach()
    endforeach()
    # "|" sorts after letters and "-": a name comes after the longer names that begin with it, unless
    # it is made the smallest character for the comparison.
    list(TRANSFORM named REPLACE "[|]" "!|")
    list(SORT named COMPARE STRING)
    set(rows "")
    set(rows_at_once "")
    foreach(entry IN LISTS named)
        string(REGEX MATCH "^(.*)![|](.*)$" _ "${entry}")
        set(path "${CMAKE_MATCH_2}")
        embed_file("${CMAKE_MATCH_1}" "${path}")
        string(APPEND rows "    ${initializer},\n")
        if(path IN_LIST AT_ONCE)
            string(APPEND rows_at_once "    ${initializer},\n")
        endif()
    endforeach()
    list(LENGTH named count)
    string(APPEND bodies "const tide_source ${table}_sources[] = {\n${rows}    {0, 0, 0, 0, 0, 0}};\n"
        "const uint32_t ${table}_source_count = ${count};\n"
        "const tide_source ${table}_at_once[] = {\n${rows_at_once}    {0, 0, 0, 0, 0, 0}};\n")
    foreach(changed bodies array_count pack pack_length)
        set(${changed} "${${changed}}" PARENT_SCOPE)
    endforeach()
endfunction()

embed_folder(tide_architecture "=architectures" "library/=architectures/library")
embed_folder(tide_catalogue "=catalogue")
embed_folder(tide_recipe "=recipes")
list(APPEND AT_ONCE gpus)
embed_file(gpus gpus)
string(APPEND bodies "const tide_source tide_gpu_source = ${initializer};\n")

# "model_type": {"llama": "LlamaModel"} of every architecture.
set(rows "")
set(rows_at_once "")
set(row_count 0)
file(GLOB paths "${MODELS}/architectures/*.json")
list(SORT paths)
foreach(path IN LISTS paths)
    get_filename_component(name "${path}" NAME_WLE)
    file(READ "${path}" text)
    string(JSON kind ERROR_VARIABLE absent TYPE "${text}" model_type)
    if(absent)
        continue()
    endif()
    if(NOT kind STREQUAL "OBJECT")
        message(FATAL_ERROR "${path}: /model_type must be an object of model type to class name")
    endif()
    string(JSON count LENGTH "${text}" model_type)
    if(count EQUAL 0)
        continue()
    endif()
    math(EXPR last "${count} - 1")
    foreach(index RANGE ${last})
        string(JSON model_type MEMBER "${text}" model_type ${index})
        string(JSON class_name GET "${text}" model_type "${model_type}")
        set(row "    {\"${model_type}\", \"${name}\", \"${class_name}\"},\n")
        string(APPEND rows "${row}")
        if("architectures/${name}" IN_LIST AT_ONCE)
            string(APPEND rows_at_once "${row}")
        endif()
        math(EXPR row_count "${row_count} + 1")
    endforeach()
endforeach()
string(APPEND bodies "const tide_model_type tide_model_types[] = {\n${rows}    {0, 0, 0}};\n"
    "const uint32_t tide_model_type_count = ${row_count};\n"
    "const tide_model_type tide_model_types_at_once[] = {\n${rows_at_once}    {0, 0, 0}};\n")

set(names "")
file(GLOB paths "${MODELS}/architectures/library/*.json")
list(SORT paths)
foreach(path IN LISTS paths)
    get_filename_component(name "${path}" NAME_WLE)
    string(APPEND names "\"library/${name}\", ")
endforeach()
string(APPEND bodies "const char *const tide_libraries[] = {${names}0};\n")

if(PACK)
    string(APPEND pack "\n]\n")
    math(EXPR pack_length "${pack_length} + 3")
    file(WRITE "${PACK}" "${pack}")
endif()
string(APPEND bodies "const uint32_t tide_pack_length = ${pack_length};\n")

file(WRITE "${OUT}" "/* Made from models/ by core/cmake/embed.cmake. */\n"
    "#include \"lang/embedded_models.h\"\n\n${bodies}")
